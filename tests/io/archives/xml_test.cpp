#include "io/archives/xml.h"

#include "tests/io/damage.h"

namespace carole::io {
namespace {

using testing::HasSubstr;

std::string XmlErrorOf(const std::string& text) {
  return TextOf<DataError>([&] { ParseXml(text, "a.xml"); });
}

TEST(Xml, ReadsElementsAndText) {
  const XmlElement root = ParseXml(
      "\xef\xbb\xbf<?xml version='1.0'?>\n<!-- a > b -->\n<annotation a=\"&lt;1>\" b='2'>\n"
      "  <size><width>500</width><empty/></size><size/>\n"
      "  a &lt;&amp;&gt; b&#33;&#x20ac;<![CDATA[<c>&]]>\n</annotation>\n<!-- end -->\n",
      "a.xml");
  EXPECT_EQ(root.name, "annotation");
  EXPECT_EQ(root.text, "a <&> b!\xe2\x82\xac<c>&");
  ASSERT_EQ(root.children.size(), 2u);
  EXPECT_EQ(root.Find("size")->Find("width")->text, "500");
  EXPECT_EQ(root.Find("size")->Find("empty")->text, "");
  EXPECT_EQ(root.Find("nothing"), nullptr);
}

TEST(Xml, RefusesEntityBombs) {
  EXPECT_EQ(
      XmlErrorOf("<!DOCTYPE a [<!ENTITY b \"xxxxxxxxxx\"><!ENTITY c \"&b;&b;&b;&b;\">]><a>&c;</a>"),
      "[io.xml] a.xml: byte 0: document types and custom entities are not supported");
  EXPECT_THAT(XmlErrorOf("<a>&lol9;</a>"), HasSubstr("unknown entity &lol9;"));
  EXPECT_THAT(XmlErrorOf("<a><!ENTITY b 'x'></a>"),
              HasSubstr("document types and custom entities"));
}

TEST(Xml, LimitsDepthAndNumberOfElements) {
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "<a>";
  EXPECT_THAT(XmlErrorOf(deep), HasSubstr("nested deeper than 64 elements"));
  std::string wide = "<a>";
  for (int i = 0; i < 100'000; ++i) wide += "<b/>";
  EXPECT_THAT(XmlErrorOf(wide + "</a>"), HasSubstr("more than 100000 elements"));
}

TEST(Xml, RefusesTruncationAtEveryByte) {
  const std::string text = "<a b='c'><!-- d --><e>f&amp;<![CDATA[g]]></e><?h i?></a>";
  EXPECT_EQ(ParseXml(text, "a.xml").children.size(), 1u);
  for (size_t size = 0; size < text.size(); ++size)
    EXPECT_THAT(XmlErrorOf(text.substr(0, size)), HasSubstr("[io.xml] a.xml: byte ")) << size;
}

TEST(Xml, RefusesMalformedText) {
  EXPECT_THAT(XmlErrorOf("no element"), HasSubstr("byte 0: no element"));
  EXPECT_THAT(XmlErrorOf("<a></b>"), HasSubstr("want </a>"));
  EXPECT_THAT(XmlErrorOf("<a b='<'/>"), HasSubstr("byte 6: not well-formed"));
  EXPECT_THAT(XmlErrorOf("<a></a><b/>"), HasSubstr("got text after the root element"));
  EXPECT_THAT(XmlErrorOf("<a b></a>"),
              HasSubstr("byte 4: not well-formed (invalid token): got '>'"));
  EXPECT_THAT(XmlErrorOf("<a b=c></a>"), HasSubstr("byte 5: not well-formed"));
  EXPECT_THAT(XmlErrorOf("< a/>"), HasSubstr("byte 1: not well-formed (invalid token): got ' '"));
  EXPECT_THAT(XmlErrorOf("<a>\xff</a>"),
              HasSubstr("byte 3: not well-formed (invalid token): got 0xff"));
  EXPECT_THAT(XmlErrorOf("<a b='c' b='d'/>"), HasSubstr("byte 9: duplicate attribute"));
  EXPECT_THAT(XmlErrorOf("<a>&#0;</a>"), HasSubstr("character number out of range"));
  EXPECT_THAT(XmlErrorOf("<a>&#x110000;</a>"), HasSubstr("character number out of range"));
  EXPECT_THAT(XmlErrorOf("<a>&#99999999999;</a>"),
              HasSubstr("byte 3: character number out of range"));
  EXPECT_THAT(XmlErrorOf("<a>& b</a>"),
              HasSubstr("byte 4: not well-formed (invalid token): got ' '"));
}

}  // namespace
}  // namespace carole::io
