// Reads checkpoints that TensorFlow wrote (tests/data/tf_checkpoints/write_fixtures.py), and
// damaged ones.
#include "io/tensorflow/tf_checkpoint.h"

#include <limits>

#include "io/tensorflow/leveldb_table.h"
#include "io/tensorflow/tf_proto.h"
#include "io/weights/open_weights.h"
#include "tests/io/damage.h"
#include "tests/io/read_values.h"
#include "tests/support/test_data.h"

namespace carole::io {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kFolder = TestData() + "/tf_checkpoints/";

// Element i is first + i/4.
std::vector<float> Values(const Shape& shape, float first) {
  std::vector<float> values;
  for (int64_t i = 0; i < shape.size(); ++i)
    values.push_back(first + 0.25f * static_cast<float>(i));
  return values;
}

void ExpectTensor(const WeightsSource& reader, const std::string& name, const Shape& shape,
                  float first) {
  ASSERT_TRUE(reader.Has(name)) << name;
  EXPECT_EQ(reader.shape(name), shape) << name;
  EXPECT_EQ(ReadValues(reader, name), Values(shape, first)) << name;
}

// The tensors that the fixtures of both formats hold.
void ExpectCommonTensors(const WeightsSource& reader) {
  ExpectTensor(reader, "net/conv1/weights", {3, 3, 2, 4}, 1);
  ExpectTensor(reader, "net/conv1/weights/Momentum", {3, 3, 2, 4}, -1);
  ExpectTensor(reader, "net/conv1/BatchNorm/beta", {4}, 2);
  ExpectTensor(reader, "net/conv1/BatchNorm/moving_mean", {4}, 3);
  ExpectTensor(reader, "net/logits/weights", {4, 3}, 4);
  ExpectTensor(reader, "net/logits/biases", {3}, 5);
  ExpectTensor(reader, "beta1_power", {}, 0.5f);
  ExpectTensor(reader, "types/double", {5}, -2);
  ExpectTensor(reader, "types/half", {5}, -3);
  ExpectTensor(reader, "parts/weights", {5, 130}, 7);
  EXPECT_EQ(reader.type("types/half"), "float16");
  EXPECT_EQ(reader.step(), 3'000'000'017);
  EXPECT_FALSE(reader.Has("types/int32"));
  EXPECT_THAT(reader.other_tensors(), Contains("types/string string [3]"));
  EXPECT_THAT(reader.other_tensors(), Contains("types/bool bool [3]"));
  EXPECT_THAT(reader.other_tensors(), Contains("global_step int64 []"));
}

TEST(TfCheckpoint, ReadsV2) {
  const auto reader = OpenWeights(kFolder + "v2.ckpt");
  EXPECT_EQ(reader->path(), kFolder + "v2.ckpt");
  EXPECT_EQ(reader->names().size(), 11u);
  ExpectCommonTensors(*reader);
  ExpectTensor(*reader, "types/bfloat16", {5}, 6);
}

TEST(TfCheckpoint, ReadsV1) {
  const auto reader = OpenWeights(kFolder + "v1.ckpt");
  EXPECT_EQ(reader->names().size(), 10u);
  ExpectCommonTensors(*reader);
}

TEST(TfCheckpoint, ReadsSeveralDataFiles) {
  const auto reader = OpenWeights(kFolder + "sharded.ckpt");
  ExpectTensor(*reader, "net/a/weights", {2, 3}, 1);
  ExpectTensor(*reader, "net/b/weights", {4}, 2);
  EXPECT_EQ(reader->step(), std::nullopt);
}

TEST(TfCheckpoint, ReadsObjectBasedNames) {
  const auto reader = OpenWeights(kFolder + "objects.ckpt");
  ExpectTensor(*reader, "layer_with_weights-1/kernel/.ATTRIBUTES/VARIABLE_VALUE", {8, 3}, 2);
}

TEST(TfCheckpoint, IsFoundInASavedModel) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "variables");
  WriteTfCheckpoint(folder / "variables/variables", {});
  EXPECT_THROW(OpenWeights(folder.path()), DataError);
  WriteText(folder / "saved_model.pb", "");
  EXPECT_EQ(OpenWeights(folder.path())->path(), folder / "variables/variables");
}

TEST(TfCheckpoint, IsFoundByAnyOfItsNames) {
  TemporaryFolder folder;
  WriteTfCheckpoint(folder / "model.ckpt-7", {});
  const std::string prefix = folder / "model.ckpt-7";
  EXPECT_EQ(FindTfCheckpoint(prefix), prefix);
  EXPECT_EQ(FindTfCheckpoint(prefix + ".index"), prefix);
  EXPECT_EQ(FindTfCheckpoint(prefix + ".data-00000-of-00001"), prefix);
  EXPECT_EQ(FindTfCheckpoint(prefix + ".meta"), prefix);
  EXPECT_EQ(FindTfCheckpoint(folder / "checkpoint"), prefix);
  EXPECT_EQ(FindTfCheckpoint(folder.path()), prefix);
  EXPECT_EQ(FindTfCheckpoint(folder / "model.ckpt-8"), std::nullopt);
  EXPECT_EQ(FindTfCheckpoint(folder / "model.ckpt-8.meta"), std::nullopt);
  EXPECT_EQ(FindTfCheckpoint(kFolder), std::nullopt);  // without a file `checkpoint`
}

std::span<const char> BytesOf(const auto& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])};
}

TEST(TfCheckpoint, IsFoundInACopiedFolderAndInV1) {
  TemporaryFolder folder;
  std::filesystem::copy(kFolder + "v1.ckpt", folder / "model.ckpt-7");
  WriteText(folder / "checkpoint", "model_checkpoint_path: \"/gone/model.ckpt-7\"\n");
  EXPECT_EQ(FindTfCheckpoint(folder.path()), folder / "model.ckpt-7");
  ExpectCommonTensors(*OpenWeights(folder.path()));
  std::filesystem::remove(folder / "model.ckpt-7");
  EXPECT_THAT([&] { FindTfCheckpoint(folder.path()); },
              ThrowsMessage<DataError>(HasSubstr("checkpoint: names " + (folder / "model.ckpt-7") +
                                                 ", which does not exist; copy its files too")));
}

TEST(TfCheckpoint, IsFoundInAFolderFromWindows) {
  TemporaryFolder folder;
  WriteTfCheckpoint(folder / "model.ckpt-12", {});
  WriteText(folder / "checkpoint", "model_checkpoint_path: \"D:\\\\runs\\\\model.ckpt-12\"\r\n");
  EXPECT_EQ(FindTfCheckpoint(folder.path()), folder / "model.ckpt-12");
}

// A file that cannot be read is not taken for absent.
TEST(TfCheckpoint, AMalformedStateIsAnError) {
  TemporaryFolder folder;
  WriteTfCheckpoint(folder / "m-2", {});
  WriteText(folder / "checkpoint", "model_checkpoint_path: m-2\n");
  EXPECT_THAT(TextOf<DataError>([&] { FindTfCheckpoint(folder.path()); }),
              testing::AllOf(HasSubstr((folder / "checkpoint") + ": line 1: got a value"),
                             HasSubstr("move it away to start from scratch")));
  std::filesystem::remove(folder / "checkpoint");
  std::filesystem::create_symlink("gone", folder / "checkpoint");
  EXPECT_THAT(TextOf<DiskError>([&] { FindTfCheckpoint(folder.path()); }),
              HasSubstr(folder / "checkpoint"));
}

TEST(TfCheckpoint, TellsOfCheckpointsThatNothingNames) {
  TemporaryFolder folder;
  WriteText(folder / "other.index", "of another program");
  EXPECT_EQ(DescribeUnnamedCheckpoint(folder.path()), "");
  for (const char* name : {"m-2", "m-10", "m-9"}) WriteTfCheckpoint(folder / name, {});
  EXPECT_EQ(DescribeUnnamedCheckpoint(folder.path()), "");
  std::filesystem::remove(folder / "checkpoint");
  EXPECT_EQ(FindTfCheckpoint(folder.path()), std::nullopt);
  EXPECT_THAT(
      DescribeUnnamedCheckpoint(folder.path()),
      HasSubstr("write the line model_checkpoint_path: \"m-10\" into " + (folder / "checkpoint")));
  EXPECT_THAT(TextOf<DataError>([&] { OpenWeights(folder.path()); }), HasSubstr("m-10"));
  EXPECT_EQ(DescribeUnnamedCheckpoint(folder / "none"), "");
}

TEST(TfCheckpoint, FindsAndReadsV1InSeveralFiles) {
  TemporaryFolder folder;
  std::filesystem::copy(kFolder + "v1.ckpt", folder / "one-00000-of-00001");
  WriteText(folder / "checkpoint",
            "model_checkpoint_path: \"/gone/one-????"
            "?-of-00001\"");
  EXPECT_EQ(FindTfCheckpoint(folder.path()), folder / "one-00000-of-00001");
  EXPECT_EQ(FindTfCheckpoint(folder / "one"), folder / "one-00000-of-00001");
  ExpectCommonTensors(*OpenWeights(folder.path()));

  // The halves of the tensor w, float32, [2]: each table lists and holds one slice of it.
  const auto write = [&](const std::string& name, const std::string& start,
                         const std::string& value) {
    const std::string slice = "06 0a04 08" + start + "1001";
    std::string bytes;
    MemorySink sink(&bytes);
    LeveldbTableWriter writer(sink);
    writer.Add("", FromHex("0a15 0a13 0a0177 1204 12020802 1801 22" + slice));
    writer.Add("1", FromHex("1213 0a0177 12" + slice + "1a06 2a04" + value));
    writer.Finish();
    WriteText(folder / name, bytes);
  };
  write("two-00000-of-00002", "00", "0000803f");
  write("two-00001-of-00002", "01", "00000040");
  const std::string any = "?????";
  for (const std::string& name :
       {std::string("two"), std::string("two-00001-of-00002"), "two-" + any + "-of-00002"}) {
    const auto reader = OpenWeights(folder / name);
    EXPECT_EQ(reader->path(), (folder / "two-") + any + "-of-00002");
    EXPECT_EQ(ReadValues(*reader, "w"), (std::vector<float>{1, 2}));
  }
  std::filesystem::remove(folder / "two-00001-of-00002");
  EXPECT_THROW(OpenWeights(folder / "two"), DiskError);
}

TEST(TfCheckpoint, RefusesAStepOutOfRange) {
  TemporaryFolder folder;
  for (const int64_t bad : {int64_t{-3}, std::numeric_limits<int64_t>::max()}) {
    const std::vector<int64_t> step{bad};
    WriteTfCheckpoint(folder / "m", {{"global_step", TfType::kInt64, {}, BytesOf(step)}});
    EXPECT_THAT([&] { OpenWeights(folder.path())->step(); },
                ThrowsMessage<DataError>(HasSubstr(
                    fmt::format("global_step: is not a training step: got {}, want 0", bad))));
  }
}

// The step of a checkpoint whose only tensor is `name`.
template <typename T>
std::optional<int64_t> StepOf(TfType type, T value, const Shape& shape = {},
                              const std::string& name = "global_step") {
  TemporaryFolder folder;
  const std::vector<T> values(static_cast<size_t>(shape.size()), value);
  WriteTfCheckpoint(folder / "m", {{name, type, shape, BytesOf(values)}});
  const auto reader = OpenWeights(folder.path());
  EXPECT_EQ(reader->names().size(), IsGlobalStep(name) ? 0U : 1U);
  return reader->step();
}

TEST(TfCheckpoint, ReadsAStepOfAnyType) {
  EXPECT_EQ(StepOf<int32_t>(TfType::kInt32, 120), 120);
  EXPECT_EQ(StepOf<uint64_t>(TfType::kUint64, 121), 121);
  EXPECT_EQ(StepOf<uint8_t>(TfType::kUint8, 200), 200);
  EXPECT_EQ(StepOf<float>(TfType::kFloat, 122.0F), 122);
  EXPECT_EQ(StepOf<double>(TfType::kDouble, 3'000'000'017.0), 3'000'000'017);
  EXPECT_EQ(StepOf<uint16_t>(TfType::kHalf, 0x4900), 10);
  EXPECT_EQ(StepOf<int32_t>(TfType::kInt32, 5, {1}), 5);
  EXPECT_EQ(StepOf<int32_t>(TfType::kInt32, 6, {}, "global_step/.ATTRIBUTES/VARIABLE_VALUE"), 6);
  EXPECT_EQ(StepOf<float>(TfType::kFloat, 7, {}, "net/global_step"), std::nullopt);
}

TEST(TfCheckpoint, RefusesAStepThatIsNotOneWholeNumber) {
  const auto error = [](TfType type, auto value, const Shape& shape = {}) {
    return TextOf<DataError>([&] { StepOf(type, value, shape); });
  };
  EXPECT_THAT(error(TfType::kFloat, 0.5F),
              HasSubstr("global_step: is not a training step: got 0.5"));
  EXPECT_THAT(error(TfType::kFloat, -1.0F), HasSubstr("got -1"));
  EXPECT_THAT(error(TfType::kDouble, std::numeric_limits<double>::quiet_NaN()),
              HasSubstr("got nan"));
  EXPECT_THAT(error(TfType::kDouble, 1e300), HasSubstr("got 1e+300"));
  EXPECT_THAT(error(TfType::kInt64, int64_t{3}, {2}), HasSubstr("got shape [2]"));
  EXPECT_THAT(error(TfType::kInt64, int64_t{3}, {0}), HasSubstr("got shape [0]"));
}

TEST(TfCheckpoint, RoundTripIsExact) {
  TemporaryFolder folder;
  const std::vector<float> weights = Values({3, 3, 2, 4}, 1), scalar{0.5f};
  const std::vector<int64_t> step{5'000'000'000};
  WriteTfCheckpoint(folder / "m", {{"net/w", TfType::kFloat, {3, 3, 2, 4}, BytesOf(weights)},
                                   {"global_step", TfType::kInt64, {}, BytesOf(step)},
                                   {"a", TfType::kFloat, {}, BytesOf(scalar)},
                                   {"none", TfType::kFloat, {0, 4}, {}}});
  const auto reader = OpenWeights(folder.path());
  EXPECT_THAT(reader->names(), ElementsAre("a", "net/w", "none"));
  ExpectTensor(*reader, "net/w", {3, 3, 2, 4}, 1);
  ExpectTensor(*reader, "a", {}, 0.5f);
  ExpectTensor(*reader, "none", {0, 4}, 0);
  EXPECT_EQ(reader->step(), 5'000'000'000);
}

TEST(TfCheckpoint, WritesTheSameBytesAsTensorFlow) {
  TemporaryFolder folder;
  const auto original = OpenWeights(kFolder + "sharded.ckpt");
  const std::vector<float> a = ReadValues(*original, "net/a/weights");
  WriteTfCheckpoint(folder / "m", {{"net/a/weights", TfType::kFloat, {2, 3}, BytesOf(a)}});
  EXPECT_EQ(ReadText(folder / "m.data-00000-of-00001"),
            ReadText(kFolder + "sharded.ckpt.data-00000-of-00002"));
  EXPECT_EQ(ReadText(folder / "checkpoint"),
            "model_checkpoint_path: \"m\"\nall_model_checkpoint_paths: \"m\"\n");
}

TEST(TfProto, EncodesSliceKeysAsTensorFlowDoes) {
  EXPECT_EQ(ToHex(EncodeSliceKey("w", {{0, -1}, {3, 130}})), "007700010102807f83c082");
  EXPECT_EQ(ToHex(EncodeSliceKey("", {{63, 64}, {8191, 8192}, {-65, int64_t{1} << 40}})),
            "0000010103bfc040dfffe020003fbffd0000000000");
}

// Opens a V2 checkpoint in memory.
std::unique_ptr<WeightsSource> Parse(const std::string& index, const std::string& data) {
  return ParseTfCheckpoint(
      "m", std::make_unique<MemorySource>("m.index", index), [data](int64_t shard, int64_t) {
        return std::make_unique<MemorySource>(fmt::format("m.{}", shard), data);
      });
}

// Opens a V1 checkpoint in memory.
std::unique_ptr<WeightsSource> ParseV1(const std::string& table) {
  std::vector<std::unique_ptr<Source>> tables;
  tables.push_back(std::make_unique<MemorySource>("v1", table));
  return ParseTfV1Checkpoint("v1", std::move(tables));
}

std::string IndexOf(const TfBundleEntry& entry, int64_t num_shards = 1) {
  std::string bytes;
  MemorySink sink(&bytes);
  LeveldbTableWriter writer(sink);
  writer.Add("", SerializeBundleHeader({.num_shards = num_shards}));
  writer.Add("w", SerializeBundleEntry(entry));
  writer.Add("x", SerializeBundleEntry(entry));
  writer.Finish();
  return bytes;
}

TEST(TfCheckpoint, RefusesImpossibleShapesAndLocations) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  const TfBundleEntry good{.type = TfType::kFloat, .dims = {2}, .size = 8};
  const std::string data(16, '\0');
  const auto error = [&](auto change) {
    TfBundleEntry entry = good;
    change(entry);
    return TextOf<DataError>([&] { Parse(IndexOf(entry), data); });
  };
  EXPECT_NO_THROW(Parse(IndexOf(good), data));
  EXPECT_THAT(error([](auto& e) { e.dims = {kHuge}; }), HasSubstr("invalid shape"));
  EXPECT_THAT(error([](auto& e) {
                e.dims = {1 << 30, 1 << 30, 1 << 30};
              }),
              HasSubstr("invalid shape"));
  EXPECT_THAT(error([](auto& e) { e.dims = {-2}; }), HasSubstr("invalid shape: got [-2]"));
  EXPECT_THAT(error([](auto& e) { e.dims = {1 << 30}; }), HasSubstr("impossible location"));
  EXPECT_THAT(error([](auto& e) { e.size = kHuge; }), HasSubstr("impossible location"));
  EXPECT_THAT(error([](auto& e) { e.size = -8; }), HasSubstr("impossible location"));
  EXPECT_THAT(error([](auto& e) { e.offset = 9; }), HasSubstr("impossible location"));
  EXPECT_THAT(error([](auto& e) { e.offset = kHuge; }), HasSubstr("impossible location"));
  EXPECT_THAT(error([](auto& e) { e.offset = -1; }), HasSubstr("impossible location"));
  EXPECT_THAT(error([](auto& e) { e.shard = 1; }), HasSubstr("impossible location"));
  EXPECT_THAT(error([](auto& e) { e.shard = -1; }), HasSubstr("impossible location"));
  // Two tensors of 12 bytes in a file of 16.
  EXPECT_THAT(error([](auto& e) { e = {.type = TfType::kFloat, .dims = {3}, .size = 12}; }),
              HasSubstr("impossible location"));
  EXPECT_THAT(TextOf<DataError>([&] { Parse(IndexOf(good, kHuge), data); }),
              HasSubstr("data files: got 9223372036854775807, want 1"));
  EXPECT_THAT(TextOf<DataError>([&] { Parse(IndexOf(good, 0), data); }), HasSubstr("data files"));
}

TEST(TfCheckpoint, RefusesSlicesThatDoNotCoverTheTensor) {
  const auto error = [&](const TfSlice& slice) {
    std::string bytes;
    MemorySink sink(&bytes);
    LeveldbTableWriter writer(sink);
    const TfBundleEntry part{.type = TfType::kFloat, .size = 4 * slice[0].length};
    writer.Add("", SerializeBundleHeader({.num_shards = 1}));
    writer.Add(EncodeSliceKey("w", slice), SerializeBundleEntry(part));
    // A tensor of 2 elements whose only slice is {start, length}.
    const std::string entry = FromHex("0801 1204 1202 0802 3a06 0a04 08") +
                              static_cast<char>(slice[0].start) + FromHex("10") +
                              static_cast<char>(slice[0].length);
    writer.Add("w", entry);
    writer.Finish();
    return TextOf<DataError>([&] { Parse(bytes, std::string(16, '\0')); });
  };
  EXPECT_THAT(error({{0, 1}}), HasSubstr("slices are missing: got 1 elements, want 2"));
  EXPECT_THAT(error({{1, 2}}), HasSubstr("lies outside"));
  EXPECT_THAT(error({{0, 3}}), HasSubstr("lies outside"));
}

// The bytes of v2.ckpt's data that are not read: booleans and, at the end, integers and strings.
constexpr size_t kUnreadEnd = 8 + 17, kUnread = 3 + kUnreadEnd;

// Reads the step and all tensors.
void ReadAllOf(const WeightsSource& reader) {
  reader.step();
  for (const std::string& name : reader.names()) ReadValues(reader, name);
}

// Damages each byte in turn. Reading must succeed or throw DataError. Returns how often it threw.
template <typename Read>
size_t CountRefused(const std::string& bytes, Read&& read) {
  size_t refused = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    DamagedBytes damaged{bytes};
    damaged.FlipBit(i, static_cast<int>(i % 8));
    try {
      read(damaged.bytes);
    } catch (const DataError&) {
      ++refused;
    }
  }
  return refused;
}

TEST(TfCheckpoint, DetectsFlippedBits) {
  const std::string index = ReadText(kFolder + "v2.ckpt.index");
  const std::string data = ReadText(kFolder + "v2.ckpt.data-00000-of-00001");
  ReadAllOf(*Parse(index, data));
  // The padding of the footer and the empty metaindex block are not read.
  constexpr size_t kUnused = 40 + 13;
  EXPECT_GE(CountRefused(index, [&](const std::string& b) { ReadAllOf(*Parse(b, data)); }),
            index.size() - kUnused);
  EXPECT_GE(CountRefused(data, [&](const std::string& b) { ReadAllOf(*Parse(index, b)); }),
            data.size() - kUnread);
  const std::string v1 = ReadText(kFolder + "v1.ckpt");
  EXPECT_GE(CountRefused(v1, [](const std::string& b) { ReadAllOf(*ParseV1(b)); }),
            v1.size() - kUnused);
}

TEST(TfCheckpoint, DetectsTruncation) {
  const std::string index = ReadText(kFolder + "v2.ckpt.index");
  const std::string data = ReadText(kFolder + "v2.ckpt.data-00000-of-00001");
  const std::string v1 = ReadText(kFolder + "v1.ckpt");
  for (size_t size = 0; size < index.size(); ++size)
    EXPECT_THROW(Parse(index.substr(0, size), data), DataError) << size;
  for (size_t size = 0; size < data.size() - kUnreadEnd; size += 7)
    EXPECT_THROW(Parse(index, data.substr(0, size)), DataError) << size;
  for (size_t size = 0; size < v1.size(); size += 7)
    EXPECT_THROW(ParseV1(v1.substr(0, size)), DataError) << size;
}

TEST(TfCheckpoint, ErrorNamesAMissingDataFile) {
  TemporaryFolder folder;
  std::filesystem::copy(kFolder + "v2.ckpt.index", folder / "v2.ckpt.index");
  EXPECT_THAT(TextOf<DiskError>([&] { OpenWeights(folder / "v2.ckpt"); }),
              HasSubstr("v2.ckpt.data-00000-of-00001"));
}

TEST(TfCheckpoint, V1RefusesAWrongNumberOfValues) {
  const auto error = [](std::string_view meta, std::string_view value) {
    std::string bytes;
    MemorySink sink(&bytes);
    LeveldbTableWriter writer(sink);
    writer.Add("", FromHex(meta));
    writer.Add("1", FromHex(value));
    writer.Finish();
    return TextOf<DataError>([&] { ReadAllOf(*ParseV1(bytes)); });
  };
  // The table of contents lists the tensor w, float32, [2].
  const std::string meta = "0a0f 0a0d 0a0177 1204 12020802 1801 2200";
  // No values, and one value.
  EXPECT_THAT(error(meta, "1207 0a0177 1200 1a00"),
              HasSubstr("too few bytes: got 0 for 2 elements"));
  EXPECT_THAT(error(meta, "120d 0a0177 1200 1a06 2a04 0000803f"),
              HasSubstr("v1: tensor: the number of values does not match"));
  // Three values.
  EXPECT_THAT(error(meta, "1215 0a0177 1200 1a0e 2a0c 0000803f 0000803f 0000803f"),
              HasSubstr("v1: tensor: the number of values does not match"));
  // The values of another tensor, malformed contents, no contents.
  EXPECT_THAT(error(meta, "1207 0a0178 1200 1a00"), HasSubstr("got 0 elements, want 2"));
  EXPECT_THAT(error("0a0f 0a0d 0a0177 1204 12020802 1801 22ff", "1200"),
              HasSubstr("v1: malformed"));
  EXPECT_THAT(error("", "1200"), HasSubstr("lists no tensors"));
}

}  // namespace
}  // namespace carole::io
