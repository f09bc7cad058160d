// carole export as users run it: which format a name means, and which files are not replaced.
#include <algorithm>
#include <filesystem>
#include <iterator>

#include "tests/cli/cli.h"
#include "tests/support/temporary_folder.h"

namespace carole::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// The arguments of TF-Slim's program, for a graph without weights.
Words SlimWords(const std::string& output) {
  return {"export", "--recipe=export_inference_graph", "--model_name=mobilenet_v1_025",
          "--output_file=" + output};
}

class ExportTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    RunToEnd(TrainWords(train_dir_, {"--max_number_of_steps=2"}));
  }
  Words ExportWords(const std::string& output, const Words& more = {}) const {
    Words words{"export", "--checkpoint_path=" + train_dir_, "--output=" + output};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(ExportTest, TheEndingChoosesTheFormat) {
  struct Case {
    std::string name, format, content;  // what the file begins with
  };
  for (const Case& c :
       {Case{"net.onnx", "onnx", "\x08"}, Case{"NET.ONNX", "onnx", "\x08"},
        Case{"net.pb", "graphdef", "\n"}, Case{"net.pbtxt", "graphdef as text", "node {"},
        Case{"net.safetensors", "safetensors", ""}, Case{"net", "onnx", "\x08"},
        Case{"net_v1.0.25_128", "onnx", "\x08"}}) {
    const std::string output = folder_ / c.name;
    EXPECT_THAT(RunToEnd(ExportWords(output)).out,
                StartsWith(output + ": " + c.format + ", lenet, 10 classes"));
    EXPECT_THAT(ReadText(output), StartsWith(c.content)) << c.name;
  }
  EXPECT_EQ(ReadText(folder_ / "net.safetensors").substr(8, 1), "{");
  RunToEnd(ExportWords(folder_ / "frozen.pb", {"--freeze"}));
  RunToEnd(ExportWords(folder_ / "any.graph", {"--format=graphdef"}));
  EXPECT_THAT(ReadText(folder_ / "any.graph"), StartsWith("\n"));
}

TEST_F(ExportTest, EndingsOfOtherFormatsAreRefused) {
  const auto fails = [&](const std::string& name, const Words& texts, const Words& flags = {}) {
    const std::string output = folder_ / name;
    EXPECT_TRUE(FailsWith(Carole(ExportWords(output, flags)), 64, texts));
    EXPECT_FALSE(std::filesystem::exists(output)) << output;
  };
  fails("net.tflite", {"got .tflite", "--format=graphdef --freeze"});
  for (const char* name : {"net.h5", "net.H5", "net.keras", "net.ckpt", "model.ckpt-2", "net.index",
                           "net.data-00000-of-00001"})
    fails(name, {name, "this format is not written", "`carole checkpoint convert`"});
  fails("net.h5", {"`carole checkpoint convert`"}, {"--format=onnx"});
  fails("net.onnx", {"--format=graphdef", "got .onnx", "want .pb or .pbtxt"},
        {"--format=graphdef"});
  fails("net.pb", {"--format=onnx", "got .pb, which is graphdef", "want .onnx"}, {"--format=onnx"});
  fails("net.pb", {"want the name of a folder"}, {"--format=saved_model"});
  fails("net.pbtxt", {"--write_text_graphdef", "got false"}, {"--nowrite_text_graphdef"});
}

// TF-Slim's program writes a graph into a file of any name.
TEST(ExportRecipeTest, WritesAGraphIntoAnyFile) {
  const TemporaryFolder folder;
  for (const char* name : {"net.pb", "net", "net.onnx", "net.tflite", "net.pbtxt"}) {
    const std::string output = folder / name;
    EXPECT_THAT(RunToEnd(SlimWords(output)).out, StartsWith(output + ": graphdef, mobilenet_v1"));
    EXPECT_THAT(ReadText(output), StartsWith("\n")) << name;
  }
  Words other = SlimWords(folder / "net.onnx");
  other.push_back("--format=graphdef");
  EXPECT_TRUE(FailsWith(Carole(other), 64, {"does not fit --format=graphdef"}));
}

TEST_F(ExportTest, DoesNotReplaceTheCheckpointThatItReads) {
  const std::string own = train_dir_ + "/model.ckpt-2.h5", link = folder_ / "link.onnx";
  const std::string before = ReadText(own);
  EXPECT_TRUE(FailsWith(Carole(ExportWords(own)), 64, {own, "`carole checkpoint convert`"}));
  std::filesystem::create_symlink(own, link);
  EXPECT_TRUE(FailsWith(Carole(ExportWords(link)), 64, {link, "would replace", own}));
  const auto by_recipe = [&](const std::string& checkpoint, const std::string& output) {
    Words words = SlimWords(output);
    words.push_back("--checkpoint_path=" + checkpoint);
    EXPECT_TRUE(FailsWith(Carole(words), 64, {"--output: " + output, "would replace"}));
  };
  by_recipe(own, own);
  by_recipe(train_dir_, train_dir_ + "/../run/model.ckpt-2.h5");
  EXPECT_EQ(ReadText(own), before);

  const std::string prefix = folder_ / "tf/model.ckpt-2";
  RunToEnd({"checkpoint", "convert", train_dir_, prefix});
  for (const std::string& file :
       {prefix + ".index", prefix + ".data-00000-of-00001", folder_ / "tf/../tf/model.ckpt-2.index",
        folder_ / "tf/checkpoint"}) {
    const std::string content = ReadText(file);
    by_recipe(prefix, file);
    by_recipe(folder_ / "tf", file);
    EXPECT_EQ(ReadText(file), content) << file;
  }
  RunToEnd({"checkpoint", "convert", train_dir_, folder_ / "served/variables/variables"});
  WriteText(folder_ / "served/saved_model.pb", "graph");
  EXPECT_TRUE(FailsWith(Carole({"export", "--checkpoint_path=" + folder_ / "served",
                                "--format=saved_model", "--output=" + folder_ / "served"}),
                        64, {"would replace", "saved_model.pb"}));
  EXPECT_EQ(ReadText(folder_ / "served/saved_model.pb"), "graph");
}

// A rename would replace /dev/stdout, or the link to it, for all programs.
TEST_F(ExportTest, RefusesLinksToOpenFiles) {
  const std::string link = folder_ / "link";
  std::filesystem::create_symlink("/proc/self/fd/1", link);
  for (const Words& program :
       {ExportWords(link), Words{"checkpoint", "convert", train_dir_, link}}) {
    Words words{"sh", "-c", "exec \"$@\" > " + (folder_ / "output"), "sh"};
    std::ranges::copy(CaroleWords(program), std::back_inserter(words));
    EXPECT_TRUE(FailsWith(RunProcess(words), 64, {link, "not a regular file"}));
    EXPECT_TRUE(std::filesystem::is_symlink(link));
  }
}

TEST_F(ExportTest, ConvertDoesNotReplaceTheCheckpointThatItReads) {
  const std::string own = train_dir_ + "/model.ckpt-2.h5", prefix = folder_ / "tf/model.ckpt-2";
  const std::string before = ReadText(own);
  EXPECT_TRUE(
      FailsWith(Carole({"checkpoint", "convert", train_dir_, own}), 64, {own, "would replace"}));
  EXPECT_EQ(ReadText(own), before);
  RunToEnd({"checkpoint", "convert", train_dir_, prefix});
  EXPECT_TRUE(FailsWith(Carole({"checkpoint", "convert", folder_ / "tf", prefix}), 64,
                        {prefix, "would replace"}));
}

TEST_F(ExportTest, BatchSizeIsThatOfAGraph) {
  RunToEnd(ExportWords(folder_ / "net.pb", {"--batch_size=4"}));
  EXPECT_TRUE(FailsWith(Carole(ExportWords(folder_ / "net.onnx", {"--batch_size=4"})), 64,
                        {"--batch_size", "want graphdef"}));
}

// The default of the recipe is imagenet.
TEST_F(ExportTest, ARecipeKeepsTheClassesOfTheCheckpoint) {
  Words words = SlimWords(folder_ / "net.pb");
  words[2] = "--model_name=lenet";
  for (const std::string& word : {"--checkpoint_path=" + train_dir_, std::string("--freeze")})
    words.push_back(word);
  EXPECT_THAT(RunToEnd(words).out, HasSubstr("lenet, 10 classes"));
  words.push_back("--dataset_name=flowers");
  EXPECT_TRUE(FailsWith(Carole(words), 65, {"got 5 classes in the data, want 10"}));
}

TEST_F(ExportTest, ASavedModelNeedsAFolderOfItsOwn) {
  const std::string photos = folder_ / "photos", served = folder_ / "served",
                    file = folder_ / "file";
  const Words flag = {"--format=saved_model"};
  std::filesystem::create_directory(photos);
  WriteText(photos + "/cat.jpg", "cat");
  EXPECT_TRUE(FailsWith(Carole(ExportWords(photos, flag)), 64,
                        {photos + ": the folder has other files: got cat.jpg", "name another"}));
  EXPECT_FALSE(std::filesystem::exists(photos + "/saved_model.pb"));
  WriteText(file, "text");
  EXPECT_TRUE(FailsWith(Carole(ExportWords(file, flag)), 64, {"got a file, want a folder"}));
  EXPECT_EQ(ReadText(file), "text");
  std::filesystem::create_directory(served);
  WriteText(served + "/.saved_model.pb.host-1-0.tmp", "of a killed process");
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT(RunToEnd(ExportWords(served, flag)).out, HasSubstr("served: saved_model, lenet"));
  RunToEnd(ExportWords(folder_ / "new/folder", flag));
}

// Before the checkpoint is read.
TEST(ExportFolderTest, IsNoFile) {
  const TemporaryFolder folder;
  for (const std::string& output : {folder.path(), folder / "new/"}) {
    const Words words{"export", "--checkpoint_path=NOWHERE", "--output=" + output};
    EXPECT_TRUE(FailsWith(Carole(words), 64,
                          {output + ": does not fit --format=onnx: got a folder", "net.onnx",
                           "--format=saved_model"}));
  }
  EXPECT_TRUE(FailsWith(Carole(SlimWords(folder.path())), 64, {"net.pb"}));
}

}  // namespace
}  // namespace carole::testing
