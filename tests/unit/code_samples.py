"""Source code as people write it, one sample a language, and the breadcrumbs each must have.

``«name»`` stands for a body of many calls of ``name``, ``«text»*20`` for that line twenty times.
"""

import re


def lines(text: str) -> str:
    return "\n".join(f"        {text}({n});" for n in range(25))


def _filled(text: str) -> str:
    text = re.sub(r"«([^»]*)»\*(\d+)", lambda match: (match[1] + "\n") * int(match[2]), text)
    return re.sub(r"«([^»]*)»", lambda match: "{\n" + lines(match[1]) + "\n}", text).lstrip("\n")


#: source -> (text, sections that must be among its blocks)
SAMPLES: dict[str, tuple[str, set[tuple[str, ...]]]] = {
    "a.js": (
        """
import x from 'y';
export class Cart extends Base {
  total = 0;
  add(item) «add»
  clear() «clear»
  size() «count»
}
const pay = async (order) => «send»;
export default function main() «run»
""",
        {("Cart", "add"), ("Cart", "clear"), ("pay",), ("main",)},
    ),
    "a.ts": (
        """
interface Item {
«  more: number;»*20
}
namespace Shop {
  export function buy(item: Item): void «take»
  function sell(item: Item): void «give»
  function lend(item: Item) «lend»
}
""",
        {("Item",), ("Shop", "buy"), ("Shop", "sell")},
    ),
    "a.tsx": (
        """
export function Button(props: Props) {
«  use(props);»*30
  return <button>{props.label}</button>;
}
""",
        {("Button",)},
    ),
    "A.java": (
        """
package shop;
import java.util.List;
/** Sells. */
@Bean
public class Shop {
  int open;
  /** Takes money. */
  @Override public void sell(Item item) «take»
  Shop() «open»
  class Shelf {
    void fill() «fill»
    void clear() «clear»
    void count() «count»
  }
}
""",
        {("Shop", "sell"), ("Shop", "Shelf", "fill")},
    ),
    "a.go": (
        """
package shop

// Sell takes money.
func (s *Shop) Sell(item Item) error «take»

func (s *Stack[T]) Push(item T) «push»

func main() «run»

type Item struct {
«  Name string»*20
}
""",
        {("Shop", "Sell"), ("Stack", "Push"), ("main",), ("Item",)},
    ),
    "a.rs": (
        """
mod shop {
  /// Sells.
  impl Trade for Shop {
    fn sell(&self) «take»
    fn open(&self) «open»
    fn close() «close»
  }
}
#[derive(Debug)]
pub struct Item {
«  name: String,»*20
}
""",
        {("shop", "Shop", "sell"), ("Item",)},
    ),
    "a.c": (
        """
#include "a.h"
#ifdef SHOP
/* Sells. */
static int *sell(struct item *item,
                 int count) «take»
#endif
struct item {
«  int count;»*20
};
typedef struct {
«  int price;»*20
} offer;
""",
        {("sell",), ("item",), ("offer",)},
    ),
    "a.cpp": (
        """
namespace shop {
template <typename T>
class Cart {
public:
  void add(T item) «add»
  int size() «count»
  void clear() «clear»
};
void Shop::sell(int n) «take»
Cart<int> &cart(int n) «find»
}
""",
        {("shop", "Cart", "add"), ("shop", "Shop::sell"), ("shop", "cart")},
    ),
    "a.h": (
        """
#pragma once
class Cart {
public:
  void add(int item) «add»
  int size() «count»
  void clear() «clear»
};
""",
        {("Cart", "add")},
    ),
    "a.cs": (
        """
using System;
namespace Acme.Shop {
  [Bean] public class Cart {
    public int Size { get; set; }
    public Cart() «open»
    public void Add(Item item) «add»
    public void Clear() «clear»
  }
}
""",
        {("Acme.Shop", "Cart", "Add")},
    ),
    "a.sh": (
        """
#!/bin/bash
# Sells things.
set -e

# Takes money.
sell() {
«  echo take»*30
}
sell
""",
        {("sell",)},
    ),
    "a.yaml": (
        """
# A shop
name: shop
# What it runs
services:
«  web: {image: shop}»*20
volumes:
  - goods
""",
        {("services",)},
    ),
    "a.toml": (
        """
[shop]
«open = true»*30

[[goods.item]]
name = 'a'
""",
        {("shop",)},
    ),
    "a.rb": (
        """
# Sells
def sell(item)
  take item
end

def close
  1
end
""",
        {()},
    ),
    "a.sql": ("-- Goods\nSELECT name FROM goods WHERE price > 3;\n\nDELETE FROM goods;\n", {()}),
    "broken.py": (
        """
def sell(:
«    take(1)»*30
class Shop
  def open(self):
«    open(2)»*30
   )))
""",
        set(),
    ),
    "unclosed.cs": (
        """
class Shop {
  void Sell() {
«    take(1);»*30
  }
  void Buy() {
«    give(1);»*30
  }
""",
        {("Sell",), ("Buy",)},
    ),
    "中文.py": (
        """
# 计算价格，包括税。
def 价格(商品):
    '''返回价格'''
«    计算(商品)»*30
    return '价格：😀'
""",
        {("价格",)},
    ),
}
SAMPLES = {source: (_filled(text), sections) for source, (text, sections) in SAMPLES.items()}
