#include "io/records/example.h"

#include "tests/io/damage.h"

namespace carole::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

FeatureQuery Find(std::string_view example, std::string_view key) {
  FeatureQuery query{.key = key};
  FindFeatures(example, std::span(&query, 1));
  return query;
}

// An Example serialized by TensorFlow, with the keys f, image/class/label and image/encoded.
std::string KnownExample() {
  return FromHex("0a56 0a11 0a0166 120c 120a 0a08 0000c03f000000c0") + FromHex("0a24 0a11") +
         "image/class/label" + FromHex("120f 1a0d 0a0b 03 ffffffffffffffffff01") +
         FromHex("0a1b 0a0d") + "image/encoded" + FromHex("120a 0a08 0a06 ffd84a504547");
}

// Returns an Example of one key "k" whose Feature has these bytes.
std::string WithFeature(std::string_view feature) {
  const auto field = [](char tag, std::string_view bytes) {
    return std::string{tag, static_cast<char>(bytes.size())} + std::string(bytes);
  };
  return field(0x0a, field(0x0a, field(0x0a, "k") + field(0x12, feature)));
}

TEST(Example, ReadsKnownBytes) {
  const std::string example = KnownExample();
  EXPECT_THAT(AllFloats(Find(example, "f")), ElementsAre(1.5f, -2.0f));
  EXPECT_THAT(AllInt64(Find(example, "image/class/label")), ElementsAre(3, -1));
  EXPECT_THAT(TextOf<DataError>([&] { SingleInt64(Find(example, "image/class/label")); }),
              HasSubstr("feature image/class/label: several values: got more than one, want one"));
  EXPECT_EQ(SingleBytes(Find(example, "image/encoded")), FromHex("ffd84a504547"));
  EXPECT_FALSE(Find(example, "image/format").feature.has_value());
  EXPECT_EQ(SingleBytes(Find(example, "image/format")), std::nullopt);
}

TEST(Example, BuildsKnownBytes) {
  ExampleBuilder builder;
  builder.Add("f", std::vector<float>{1.5f, -2.0f});
  builder.Add("image/class/label", std::vector<int64_t>{3, -1});
  builder.Add("image/encoded", FromHex("ffd84a504547"));
  EXPECT_EQ(ToHex(builder.Finish()), ToHex(KnownExample()));
}

TEST(Example, ReadsUnpackedLists) {
  EXPECT_THAT(AllInt64(Find(WithFeature(FromHex("1a0408030804")), "k")), ElementsAre(3, 4));
  EXPECT_THAT(AllFloats(Find(WithFeature(FromHex("120a0d0000c03f0d000000c0")), "k")),
              ElementsAre(1.5f, -2.0f));
}

TEST(Example, TakesTheLastValueOfADuplicateKey) {
  ExampleBuilder builder;
  builder.Add("k", int64_t{1});
  builder.Add("k", int64_t{2});
  EXPECT_EQ(SingleInt64(Find(builder.Finish(), "k")), 2);
  EXPECT_EQ(ListFeatures(builder.Finish()).size(), 2u);
}

TEST(Example, SkipsUnknownFields) {
  const std::string example =
      FromHex("1001") + WithFeature(FromHex("1a020807")) + FromHex("1d00000000");
  EXPECT_EQ(SingleInt64(Find(example, "k")), 7);
  EXPECT_EQ(SingleInt64(Find(WithFeature(FromHex("2801 1a020807")), "k")), 7);
}

TEST(Example, TreatsAFeatureWithoutListAsAbsent) {
  EXPECT_EQ(SingleInt64(Find(WithFeature(""), "k")), std::nullopt);
  EXPECT_EQ(SingleBytes(Find(WithFeature(FromHex("0a00")), "k")), std::nullopt);
}

TEST(Example, NamesTheWrongType) {
  const std::string example = KnownExample();
  EXPECT_EQ(TextOf<DataError>([&] { SingleInt64(Find(example, "image/encoded")); }),
            "[io.example] feature image/encoded: wrong type: got bytes, want integers");
}

TEST(Example, RejectsLengthsBeyondTheEnclosingMessage) {
  const std::string example = KnownExample();
  for (size_t size = 1; size < example.size(); ++size) {
    EXPECT_THAT(TextOf<DataError>([&] { Find(example.substr(0, size), "f"); }),
                HasSubstr("malformed protobuf"));
  }
  EXPECT_THAT(
      TextOf<DataError>([] { AllFloats(Find(WithFeature(FromHex("12050a0300000000")), "k")); }),
      HasSubstr("feature k: malformed protobuf"));
}

TEST(Example, ThrowsOnlyDataErrorForAnyFlippedBit) {
  for (size_t bit = 0; bit < KnownExample().size() * 8; ++bit) {
    DamagedBytes damaged{KnownExample()};
    damaged.FlipBit(bit / 8, static_cast<int>(bit % 8));
    try {
      for (const FeatureQuery& query : ListFeatures(damaged.bytes)) {
        AllBytes(query);
        AllFloats(query);
        AllInt64(query);
      }
    } catch (const DataError&) {  // any other exception or a crash fails the test
    }
  }
}

}  // namespace
}  // namespace carole::io
