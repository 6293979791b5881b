"""Why a document can't be imported, for a person."""

#: reason code -> what it tells a person
DOCUMENT_REASONS: dict[str, str] = {
    "blank": "no text was found in it",
    "undecodable": "its text encoding could not be determined",
    "not_text": "it is a binary file that claims to be text",
    "unsupported_type": "files of this type are not accepted",
    "too_large": "it is larger than allowed",
    "too_complex": "it needs more time or memory to read than allowed",
    "corrupt": "its structure is damaged",
    "encrypted": "it is protected by a password",
    "needs_ocr": "its pages are pictures of text",
    "bomb": "it is built to use up memory when it is unpacked",
    "original_lost": "its uploaded bytes are lost or damaged in the store",
    "too_sensitive": "it is more sensitive than the embedding endpoint is cleared for",
}
