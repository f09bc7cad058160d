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

// The entities that XML predefines.
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

// A recursive-descent parser. Its methods consume the text from at_ on.
class Parser {
 public:
  Parser(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  XmlElement Document() {
    Take("\xef\xbb\xbf");
    SkipMisc();
    if (!Take("<")) Fail("no element: got text, want <");
    XmlElement root = Element(1);
    SkipMisc();
    if (at_ < text_.size()) Fail("got text after the root element, want the end of the file");
    return root;
  }

 private:
  [[noreturn]] void Fail(std::string_view what) const {
    throw DataError(fmt::format("[io.xml] {}: byte {}: {}", file_, at_, what));
  }

  // Consumes `token` if it is next; returns whether it was.
  bool Take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  void SkipBlanks() { at_ = std::min(text_.find_first_not_of(kBlanks, at_), text_.size()); }

  void SkipPast(std::string_view token) {
    const size_t end = text_.find(token, at_);
    if (end == std::string_view::npos) Fail(fmt::format("truncated file: want {}", token));
    at_ = end + token.size();
  }

  // Skips one comment or processing instruction; returns whether there was one.
  bool SkipComment() {
    if (Take("<!--")) return SkipPast("-->"), true;
    if (Take("<?")) return SkipPast("?>"), true;
    return false;
  }

  // Skips blanks, comments and processing instructions before and after the root element.
  void SkipMisc() {
    do SkipBlanks();
    while (SkipComment());
    if (text_.substr(at_).starts_with("<!"))
      Fail("document types and custom entities are not supported");
  }

  std::string_view Name() {
    const size_t start = at_;
    at_ = std::min(text_.find_first_of("<>/=&\"' \t\r\n", at_), text_.size());
    if (at_ == start) Fail("want a name");
    return text_.substr(start, at_ - start);
  }

  // Parses an element, whose "<" is already consumed. `depth` is this element's; the root has 1.
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

  // Skips the attributes and the end of the tag; returns whether the tag ends with "/>".
  bool SkipAttributes() {
    for (;;) {
      SkipBlanks();
      if (Take("/>")) return true;
      if (Take(">")) return false;
      Name();
      SkipBlanks();
      if (!Take("=")) Fail("want = after the name of an attribute");
      SkipBlanks();
      const std::string_view quote = text_.substr(at_, 1);
      if (quote != "\"" && quote != "'") Fail("want a quoted value");
      ++at_;
      SkipPast(quote);
    }
  }

  // Parses text and children, up to and including "</".
  void Content(XmlElement& element, int depth) {
    for (;;) {
      const size_t end = text_.find_first_of("<&", at_);
      if (end == std::string_view::npos) {
        at_ = text_.size();
        Fail(fmt::format("truncated file: want </{}>", element.name.substr(0, 80)));
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
      } else if (!SkipComment()) {
        if (Take("<!")) Fail("document types and custom entities are not supported");
        Take("<");
        element.children.push_back(Element(depth + 1));
      }
    }
  }

  // Parses a reference, whose "&" is already consumed: a predefined entity or a character's number.
  void Reference(std::string& out) {
    const size_t end = text_.find(';', at_);
    if (end == std::string_view::npos || end - at_ > 10) Fail("want ; after &");
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
    if (!code || *code == 0 || *code > 0x10ffff)
      Fail("character number out of range: want 1 to 0x10ffff");
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
