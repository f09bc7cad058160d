// Reads the annotation files of image data sets with Expat: elements and their text.
//
// ParseXml() skips attributes. It refuses document types, and with them custom entities, so that a
// small file cannot expand to a large text in memory ("billion laughs").
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace carole::io {

struct XmlElement {
  std::string name;
  std::string text;  // the element's own text, without blanks at both ends
  std::vector<XmlElement> children;

  // Returns the first child of this name, or nullptr.
  const XmlElement* Find(std::string_view child) const;
};

// Parses a document and returns its root element. `file` is the text's name in error messages.
// Throws DataError, with the byte offset, if the text is truncated or not well formed, is nested
// deeper than 64 elements, or has more than 100,000 elements.
XmlElement ParseXml(std::string_view text, const std::string& file);

}  // namespace carole::io
