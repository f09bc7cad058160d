// The XML of annotations: elements and their text. Attributes are passed over; document types, and
// with them entities of one's own, are refused, so that no file can grow in memory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace carole::io {

struct XmlElement {
  std::string name;
  std::string text;  // all of its own text, blanks at both ends cut off
  std::vector<XmlElement> children;

  // The first child of this name, or nullptr.
  const XmlElement* Find(std::string_view child) const;
};

// The root element. `file` is what errors call the text. Throws DataError, naming the byte, for
// text that is cut off, not well formed, nested deeper than 64 or of more than 100,000 elements.
XmlElement ParseXml(std::string_view text, const std::string& file);

}  // namespace carole::io
