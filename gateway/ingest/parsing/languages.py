"""Languages: which source code a file holds, and which of its constructs make an outline of it."""

import importlib
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language as Grammar


@dataclass(frozen=True, slots=True)
class Language:
    """How to read a language; without a ``grammar`` it is cut at blank lines.

    Names of syntax nodes: a ``definition`` is a passage of its own, a ``container`` also has
    definitions inside, a ``wrapper`` (decorators, export, template) belongs to the one it holds, a
    ``transparent`` node only groups. ``grammar`` is module and function.
    """

    name: str
    grammar: tuple[str, str] | None = None
    definitions: frozenset[str] = frozenset()
    containers: frozenset[str] = frozenset()
    wrappers: frozenset[str] = frozenset()
    transparent: frozenset[str] = frozenset()

    def load(self) -> "Grammar | None":
        """The compiled grammar, imported when first needed: most imports hold no code."""
        if self.grammar is None:
            return None
        from tree_sitter import Language as Grammar

        module, function = self.grammar
        return Grammar(getattr(importlib.import_module(module), function)())


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SCRIPT_DEFINITIONS = _words(
    "function_declaration generator_function_declaration method_definition enum_declaration"
    " interface_declaration type_alias_declaration lexical_declaration variable_declaration"
    " function_signature abstract_method_signature"
)
_SCRIPT_CONTAINERS = _words("class_declaration abstract_class_declaration class internal_module module")
_SCRIPT_WRAPPERS = _words("export_statement ambient_declaration")
_SCRIPT_TRANSPARENT = _words("expression_statement class_body statement_block")

_C_GROUPS = _words(
    "preproc_ifdef preproc_if preproc_else preproc_elif linkage_specification declaration_list"
)


def _script(name: str, module: str, function: str) -> Language:
    return Language(
        name,
        (module, function),
        _SCRIPT_DEFINITIONS,
        _SCRIPT_CONTAINERS,
        _SCRIPT_WRAPPERS,
        _SCRIPT_TRANSPARENT,
    )


PYTHON = Language(
    "python",
    ("tree_sitter_python", "language"),
    _words("function_definition"),
    _words("class_definition"),
    _words("decorated_definition"),
    _words("block"),
)
JAVASCRIPT = _script("javascript", "tree_sitter_javascript", "language")
TYPESCRIPT = _script("typescript", "tree_sitter_typescript", "language_typescript")
TSX = _script("tsx", "tree_sitter_typescript", "language_tsx")
JAVA = Language(
    "java",
    ("tree_sitter_java", "language"),
    _words("method_declaration constructor_declaration compact_constructor_declaration"),
    _words(
        "class_declaration interface_declaration enum_declaration record_declaration"
        " annotation_type_declaration"
    ),
    transparent=_words("class_body interface_body enum_body enum_body_declarations annotation_type_body"),
)
GO = Language(
    "go",
    ("tree_sitter_go", "language"),
    _words("function_declaration method_declaration type_declaration"),
)
RUST = Language(
    "rust",
    ("tree_sitter_rust", "language"),
    _words("function_item struct_item enum_item union_item macro_definition type_item"),
    _words("impl_item trait_item mod_item foreign_mod_item"),
    transparent=_words("declaration_list"),
)
C = Language(
    "c",
    ("tree_sitter_c", "language"),
    _words("function_definition struct_specifier enum_specifier union_specifier type_definition"),
    transparent=_C_GROUPS,
)
CPP = Language(
    "cpp",
    ("tree_sitter_cpp", "language"),
    _words("function_definition enum_specifier union_specifier type_definition concept_definition"),
    _words("class_specifier struct_specifier namespace_definition"),
    _words("template_declaration"),
    _C_GROUPS | {"field_declaration_list"},
)
CSHARP = Language(
    "csharp",
    ("tree_sitter_c_sharp", "language"),
    _words(
        "method_declaration constructor_declaration destructor_declaration operator_declaration"
        " property_declaration indexer_declaration delegate_declaration local_function_statement"
    ),
    _words(
        "namespace_declaration class_declaration struct_declaration interface_declaration record_declaration"
        " enum_declaration"
    ),
    transparent=_words("declaration_list global_statement"),
)
BASH = Language("bash", ("tree_sitter_bash", "language"), _words("function_definition"))

LANGUAGE_OF_EXTENSION: dict[str, Language] = {
    **dict.fromkeys((".py", ".pyi", ".pyw"), PYTHON),
    **dict.fromkeys((".js", ".jsx", ".mjs", ".cjs"), JAVASCRIPT),
    **dict.fromkeys((".ts", ".mts", ".cts"), TYPESCRIPT),
    ".tsx": TSX,
    ".java": JAVA,
    ".go": GO,
    ".rs": RUST,
    **dict.fromkeys((".c", ".h"), C),
    **dict.fromkeys((".cpp", ".cc", ".cxx", ".hpp", ".hh", ".hxx"), CPP),
    ".cs": CSHARP,
    **dict.fromkeys((".sh", ".bash"), BASH),
    **{
        f".{extension}": Language(name)
        for extension, name in (
            ("rb", "ruby"),
            ("php", "php"),
            ("kt", "kotlin"),
            ("kts", "kotlin"),
            ("swift", "swift"),
            ("scala", "scala"),
            ("sql", "sql"),
            ("r", "r"),
            ("lua", "lua"),
            ("pl", "perl"),
            ("pm", "perl"),
            ("ps1", "powershell"),
            ("proto", "protobuf"),
            ("graphql", "graphql"),
            ("tf", "hcl"),
            ("css", "css"),
            ("vue", "vue"),
            ("yaml", "yaml"),
            ("yml", "yaml"),
            ("toml", "toml"),
            ("ini", "ini"),
            ("cfg", "ini"),
            ("conf", "ini"),
            ("properties", "properties"),
            ("json", "json"),
            ("jsonl", "json"),
        )
    },
}
_CPP_HEADER = re.compile(
    r"^\s*(?:class|namespace|template|using|public:|private:|protected:)\b", re.MULTILINE
)


def language_of(source: str, text: str) -> Language:
    """By the name's ending; a header with C++ in it is read as C++. KeyError when it is no code."""
    extension = PurePosixPath(source.replace("\\", "/")).suffix.lower()
    language = LANGUAGE_OF_EXTENSION[extension]
    return CPP if extension == ".h" and _CPP_HEADER.search(text) else language
