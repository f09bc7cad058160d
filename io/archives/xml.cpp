// Parses with Expat, which calls the parser's handlers for each tag and text. Expat's C code must
// not be unwound by an exception: handlers note a problem and stop Expat, and Document() throws.
#include "io/archives/xml.h"

#include <expat.h>
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <memory>

#include "src/core/check.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

constexpr size_t kMaxDepth = 64;
constexpr int kMaxElements = 100'000;
constexpr size_t kMaxNameShown = 80;  // bytes of a name in an error message
constexpr std::string_view kBlanks = " \t\r\n";

class Parser {
 public:
  Parser(std::string_view text, const std::string& file)
      : text_(text), file_(file), expat_(XML_ParserCreate(nullptr), XML_ParserFree) {
    CAROLE_CHECK(expat_ != nullptr, "XML_ParserCreate failed");
    XML_SetUserData(expat_.get(), this);
    XML_SetElementHandler(expat_.get(), Start, End);
    XML_SetCharacterDataHandler(expat_.get(), Text);
    XML_SetStartDoctypeDeclHandler(expat_.get(), Doctype);
  }

  XmlElement Document() {
    if (text_.size() > INT_MAX) Note(0, fmt::format("too long: got {} bytes", text_.size()));
    if (problem_.empty() && XML_Parse(expat_.get(), text_.data(), static_cast<int>(text_.size()),
                                      true) != XML_STATUS_OK) {
      const size_t at = At();
      Note(at, Explain(XML_GetErrorCode(expat_.get()), at));
    }
    if (!problem_.empty()) throw DataError(problem_);
    return std::move(document_.children.front());
  }

 private:
  static void Start(void* self, const char* name, const char**) {
    static_cast<Parser*>(self)->OnStart(name);
  }
  static void End(void* self, const char*) { static_cast<Parser*>(self)->OnEnd(); }
  static void Text(void* self, const char* text, int bytes) {
    static_cast<Parser*>(self)->open_.back()->text.append(text, static_cast<size_t>(bytes));
  }
  static void Doctype(void* self, const char*, const char*, const char*, int) {
    static_cast<Parser*>(self)->OnDoctype();
  }

  void OnStart(const char* name) {
    if (!problem_.empty()) return;  // Expat may call some more handlers after it was stopped
    if (open_.size() > kMaxDepth)
      return Stop(At(), fmt::format("nested deeper than {} elements", kMaxDepth));
    if (++elements_ > kMaxElements)
      return Stop(At(), fmt::format("more than {} elements", kMaxElements));
    open_.push_back(&open_.back()->children.emplace_back(XmlElement{.name = name}));
  }

  void OnEnd() {
    if (!problem_.empty()) return;
    std::string& text = open_.back()->text;
    const size_t first = text.find_first_not_of(kBlanks);
    text.erase(text.find_last_not_of(kBlanks) + 1);
    text.erase(0, std::min(first, text.size()));
    open_.pop_back();
  }

  // Expat calls this at the end of the type's name.
  void OnDoctype() {
    const size_t begin = text_.rfind("<!DOCTYPE", At());
    Stop(begin == std::string_view::npos ? At() : begin,
         "document types and custom entities are not supported");
  }

  // Offset of the current event, or of the error.
  size_t At() const {
    const XML_Index at = XML_GetCurrentByteIndex(expat_.get());
    return at < 0 ? 0 : std::min(static_cast<size_t>(at), text_.size());
  }

  // Keeps the first problem.
  void Note(size_t at, const std::string& what) {
    if (problem_.empty()) problem_ = fmt::format("[io.xml] {}: byte {}: {}", file_, at, what);
  }

  void Stop(size_t at, const std::string& what) {
    Note(at, what);
    XML_StopParser(expat_.get(), XML_FALSE);
  }

  // "</name>" of the innermost open element.
  std::string EndTag() const {
    return open_.size() == 1 ? "an element"
                             : fmt::format("</{}>", open_.back()->name.substr(0, kMaxNameShown));
  }

  // Describes Expat's error at the offset `at`.
  std::string Explain(XML_Error code, size_t at) const {
    const std::string_view rest = text_.substr(at);
    switch (code) {
      case XML_ERROR_SYNTAX:
        return "no element: got text, want <";
      case XML_ERROR_NO_ELEMENTS:
      case XML_ERROR_UNCLOSED_TOKEN:
      case XML_ERROR_UNCLOSED_CDATA_SECTION:
        return fmt::format("truncated file: want {}", EndTag());
      case XML_ERROR_TAG_MISMATCH:
        return fmt::format("mismatched tag: want {}", EndTag());
      case XML_ERROR_JUNK_AFTER_DOC_ELEMENT:
        return "got text after the root element, want the end of the file";
      case XML_ERROR_UNDEFINED_ENTITY:
        return fmt::format("unknown entity {}",
                           rest.substr(0, std::min(rest.find(';') + 1, kMaxNameShown)));
      case XML_ERROR_BAD_CHAR_REF:
        return "character number out of range: want 1 to 0x10ffff";
      default:
        break;
    }
    if (text_.substr(0, at).ends_with("<!"))
      return "document types and custom entities are not supported";
    const unsigned char next = rest.empty() ? 0 : static_cast<unsigned char>(rest.front());
    const bool printable = next >= ' ' && next <= '~';
    return fmt::format(
        "{}: got {}", XML_ErrorString(code),
        printable ? fmt::format("'{}'", rest.front()) : fmt::format("{:#04x}", next));
  }

  std::string_view text_;
  const std::string& file_;
  std::unique_ptr<XML_ParserStruct, void (*)(XML_Parser)> expat_;
  XmlElement document_;                        // its only child is the root element
  std::vector<XmlElement*> open_{&document_};  // the open elements, outermost first
  int elements_ = 0;
  std::string problem_;  // "" if there is none
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
