#include "io/archives/xml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "src/core/error.h"
#include "src/core/text/parse_number.h"

namespace carole::io {
namespace {

constexpr int kMaxDepth = 64;
constexpr int kMaxElements = 100'000;
constexpr std::string_view kBlanks = " \t\r\n";

constexpr std::array<std::pair<std::string_view, char>, 5> kEntities = {
    {{"lt", '<'}, {"gt", '>'}, {"amp", '&'}, {"quot", '"'}, {"apos", '\''}}};

void AppendUtf8(uint32_t code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr uint32_t kLead[] = {0, 0xc0, 0xe0, 0xf0};
  out += static_cast<char>(kLead[more] | code >> (6 * more));
  for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80 | (code >> (6 * i) & 0x3f));
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  XmlElement Document() {
    Take("\xef\xbb\xbf");
    SkipMisc();
    if (!Take("<")) Fail("got no element");
    XmlElement root = Element(1);
    SkipMisc();
    if (at_ < text_.size()) Fail("got more behind the root element");
    return root;
  }

 private:
  [[noreturn]] void Fail(std::string_view what) const {
    throw DataError(fmt::format("[io.xml] {}: byte {}: {}", file_, at_, what));
  }

  bool Take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  void SkipBlanks() { at_ = std::min(text_.find_first_not_of(kBlanks, at_), text_.size()); }

  void SkipPast(std::string_view token) {
    const size_t end = text_.find(token, at_);
    if (end == std::string_view::npos) Fail(fmt::format("truncated: want {}", token));
    at_ = end + token.size();
  }

  // Comments and processing instructions; true when there was one.
  bool SkipAside() {
    if (Take("<!--")) return SkipPast("-->"), true;
    if (Take("<?")) return SkipPast("?>"), true;
    return false;
  }

  void SkipMisc() {
    do SkipBlanks();
    while (SkipAside());
    if (text_.substr(at_).starts_with("<!")) Fail("document types and entities are refused");
  }

  std::string_view Name() {
    const size_t start = at_;
    at_ = std::min(text_.find_first_of("<>/=&\"' \t\r\n", at_), text_.size());
    if (at_ == start) Fail("want a name");
    return text_.substr(start, at_ - start);
  }

  // Behind "<". `depth` of this element.
  XmlElement Element(int depth) {
    if (depth > kMaxDepth) Fail(fmt::format("nested deeper than {} elements", kMaxDepth));
    if (++elements_ > kMaxElements) Fail(fmt::format("more than {} elements", kMaxElements));
    XmlElement element{.name = std::string(Name())};
    if (SkipAttributes()) return element;
    Content(element, depth);
    if (Name() != element.name) Fail(fmt::format("want </{}>", element.name.substr(0, 80)));
    SkipBlanks();
    if (!Take(">")) Fail("want >");
    const size_t first = element.text.find_first_not_of(kBlanks);
    element.text.erase(element.text.find_last_not_of(kBlanks) + 1);
    element.text.erase(0, std::min(first, element.text.size()));
    return element;
  }

  // Up to and with the tag's end; true when it was "/>".
  bool SkipAttributes() {
    for (;;) {
      SkipBlanks();
      if (Take("/>")) return true;
      if (Take(">")) return false;
      Name();
      SkipBlanks();
      if (!Take("=")) Fail("want = behind the name of an attribute");
      SkipBlanks();
      const std::string_view quote = text_.substr(at_, 1);
      if (quote != "\"" && quote != "'") Fail("want a quoted value");
      ++at_;
      SkipPast(quote);
    }
  }

  // Text and children, up to and with "</".
  void Content(XmlElement& element, int depth) {
    for (;;) {
      const size_t end = text_.find_first_of("<&", at_);
      if (end == std::string_view::npos) {
        at_ = text_.size();
        Fail(fmt::format("truncated: want </{}>", element.name.substr(0, 80)));
      }
      element.text += text_.substr(at_, end - at_);
      at_ = end;
      if (Take("&")) {
        Reference(element.text);
      } else if (Take("</")) {
        return;
      } else if (Take("<![CDATA[")) {
        const size_t start = at_;
        SkipPast("]]>");
        element.text += text_.substr(start, at_ - start - 3);
      } else if (!SkipAside()) {
        if (Take("<!")) Fail("document types and entities are refused");
        Take("<");
        element.children.push_back(Element(depth + 1));
      }
    }
  }

  // Behind "&": one of the five entities that XML has, or a number.
  void Reference(std::string& out) {
    const size_t end = text_.find(';', at_);
    if (end == std::string_view::npos || end - at_ > 10) Fail("want ; behind &");
    std::string_view name = text_.substr(at_, end - at_);
    at_ = end + 1;
    for (const auto& [entity, character] : kEntities) {
      if (name == entity) {
        out += character;
        return;
      }
    }
    if (!name.starts_with('#')) Fail(fmt::format("unknown entity &{};", name));
    name.remove_prefix(1);
    const int base = name.starts_with('x') ? 16 : 10;
    if (base == 16) name.remove_prefix(1);
    const auto code = ParseNumber<uint32_t>(name, base);
    if (!code || *code == 0 || *code > 0x10ffff) Fail("number of a character out of range");
    AppendUtf8(*code, out);
  }

  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
  int elements_ = 0;
};

}  // namespace

const XmlElement* XmlElement::Find(std::string_view child) const {
  const auto found = std::find_if(children.begin(), children.end(),
                                  [&](const XmlElement& element) { return element.name == child; });
  return found == children.end() ? nullptr : &*found;
}

XmlElement ParseXml(std::string_view text, const std::string& file) {
  return Parser(text, file).Document();
}

}  // namespace carole::io
