// Makes annotations in the XML form of ImageNet and PASCAL VOC.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

namespace carole::io {

struct AnnotatedObject {
  std::string name;
  int xmin, ymin, xmax, ymax;
};

inline std::string Annotation(int width, int height, const std::vector<AnnotatedObject>& objects) {
  std::string xml = fmt::format(
      "<annotation>\n\t<folder>f</folder>\n\t<source><database>ILSVRC_2012</database></source>\n"
      "\t<size><width>{}</width><height>{}</height><depth>3</depth></size>\n",
      width, height);
  for (const AnnotatedObject& object : objects) {
    xml += fmt::format(
        "\t<object><name>{}</name><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax>"
        "<ymax>{}</ymax></bndbox></object>\n",
        object.name, object.xmin, object.ymin, object.xmax, object.ymax);
  }
  return xml + "</annotation>\n";
}

}  // namespace carole::io
