// Commands and flags, without training. Help has its own tests (help_test.cpp).
#include <sys/stat.h>

#include "tests/cli/cli.h"

namespace carole::testing {
namespace {

using ::testing::Test;

TEST(ProgramTest, VersionNamesTheLibraries) {
  const ProcessResult version = RunToEnd({"--version"});
  for (const char* part : {"carole ", "MPI", "oneDNN", "HDF5", "CUDA"})
    EXPECT_NE(version.out.find(part), std::string::npos) << part;
}

TEST(ProgramTest, FullOutputIsADiskError) {
  // The outputs are shorter and longer than a buffer.
  for (const std::string command : {"--version", "model list", "train --helpfull"}) {
    const ProcessResult result =
        RunProcess({"sh", "-c", "'" CAROLE_BINARY "' " + command + " > /dev/full"});
    EXPECT_TRUE(FailsWith(result, 74, {"No space left"}));
  }
}

TEST(ProgramTest, FileOverTheSizeLimitIsADiskError) {
  const TemporaryFolder folder;
  const std::string command = "'" CAROLE_BINARY
                              "'"
                              " dataset build --dataset_name=synthetic --num_images=20 "
                              "--dataset_dir=" +
                              folder.path();
  EXPECT_TRUE(FailsWith(RunProcess({"bash", "-c", "ulimit -f 8; " + command}), 74,
                        {"train-00000", "File too large"}));
}

// Otherwise the first files that are opened would get the numbers of the streams, and their lines.
TEST(ProgramTest, RunsWithoutStandardStreams) {
  const ProcessResult result = RunProcess(
      {"sh", "-c", "'" CAROLE_BINARY "' model summary --model_name=none 0<&- 1>&- 2>&-; echo $?"});
  EXPECT_EQ(result.out, "64\n");
}

TEST(ProgramTest, UnknownCommandNamesTheNearest) {
  EXPECT_TRUE(FailsWith(Carole({"trian"}), 64, {"trian", "did you mean train?"}));
  EXPECT_TRUE(
      FailsWith(Carole({"checkpoint", "inspekt"}), 64, {"did you mean checkpoint inspect?"}));
}

TEST(ProgramTest, UnknownFlagNamesTheNearest) {
  EXPECT_TRUE(FailsWith(Carole({"train", "--bath_size=8"}), 64,
                        {"--bath_size", "did you mean --batch_size?"}));
  EXPECT_TRUE(
      FailsWith(Carole({"train", "--optimzer", "sgd"}), 64, {"--optimzer", "--optimizer?"}));
  EXPECT_TRUE(FailsWith(Carole({"train", "--model_dir=RUN"}), 64, {"did you mean --train_dir?"}));
  EXPECT_THAT(Carole({"predict", "/nowhere.png"}).err,
              ::testing::HasSubstr("--checkpoint_path: not given; takes /tmp/tfmodel/"));
}

TEST(ProgramTest, ValuesThatDoNotFitAreRefused) {
  const std::pair<Words, std::string> rows[] = {
      {{"--batch_size=many"}, "--batch_size: got many, want a whole number above 0;"},
      {{"--learning_rate=fast"}, "--learning_rate: got fast, want a number;"},
      {{"--max_number_of_steps=1", "--max_number_of_steps=1e3"},
       "--max_number_of_steps: got 1e3, want a whole number of at least 0;"},
      {{"--train_image_size=-3"}, "--train_image_size: got -3, want 0 to 16384;"},
      {{"--labels_offset=-2000000000"},
       "--labels_offset: got -2000000000, want -1000000 to 1000000;"},
      {{"--collective_timeout=nan"}, "--collective_timeout: got nan, want a finite number;"},
      {{"--learning_rate_factors=1,inf"},
       "--learning_rate_factors: got inf, want a finite number;"},
      {{"--opt_epsilon=1e308"}, "--opt_epsilon: got 1e308, want a number of at most 3.4e+38;"},
      {{"--threads=9223372036854775807"},
       "--threads: got 9223372036854775807, want a whole number of at most 2147483647;"},
      {{"--seed=-1"}, "--seed: got -1, want a whole number of at least 0;"},
      {{"--batch_size"}, "--batch_size: its value is missing, want a whole number above 0;"}};
  for (const auto& [flags, text] : rows) {
    Words words = {"train"};
    words.insert(words.end(), flags.begin(), flags.end());
    EXPECT_TRUE(FailsWith(Carole(words), 64, {text})) << text;
  }
}

TEST(ProgramTest, ImpossibleSizesAreRefused) {
  const std::string most = "9223372036854775807";
  EXPECT_TRUE(FailsWith(Carole({"bench", "train", "--model_name=lenet", "--batch_size=" + most}),
                        64, {"--batch_size: got " + most + ", want at most 16777216"}));
  EXPECT_TRUE(FailsWith(Carole({"dataset", "build", "--dataset_name=synthetic", "--dataset_dir=/no",
                                "--train_shards=2147483647"}),
                        64, {"--train_shards: got 2147483647, want 0 to 99999"}));
}

// The rank shows which of many hosts lacks the folder.
TEST(ProgramTest, EarlyErrorsNameTheirRank) {
  const ProcessResult run = Carole({"train", "--dataset_dir=/no/such", "--train_dir="}, 2);
  EXPECT_THAT(run.err, ::testing::ContainsRegex("\\[rank [01]\\] \\[io.datasets\\]"));
}

TEST(ProgramTest, DashesAndUnderscoresAreTheSame) {
  // All four spellings give the same error about the value.
  for (const Words& words :
       {Words{"train", "--model-name=lennet"}, Words{"train", "--model-name", "lennet"},
        Words{"train", "--model_name=lennet"}, Words{"train", "--model_name", "lennet"}})
    EXPECT_TRUE(FailsWith(Carole(words), 64, {"lennet", "lenet"}));
}

TEST(ProgramTest, BoolsAreTrueOrFalse) {
  EXPECT_TRUE(FailsWith(Carole({"train", "--reproducible=maybe"}), 64,
                        {"--reproducible: got maybe, want true or false"}));
  EXPECT_TRUE(FailsWith(Carole({"train", "--reproducible="}), 64,
                        {"--reproducible: got nothing, want true or false"}));
}

TEST(ProgramTest, ConfigFileHoldsFlags) {
  TemporaryFolder folder;
  std::ofstream(folder / "run.toml") << "model-name = \"lennet\"\nbatch_size = 4\n";
  EXPECT_TRUE(
      FailsWith(Carole({"train", "--config", folder / "run.toml"}), 64, {"lennet", "lenet"}));
  EXPECT_TRUE(FailsWith(Carole({"train", "--config", folder / "run.toml", "--model_name=cifarnat"}),
                        64, {"cifarnet"}));
  std::ofstream(folder / "bad.toml") << "model_nam = \"lenet\"\n";
  EXPECT_TRUE(FailsWith(Carole({"train", "--config", folder / "bad.toml"}), 64,
                        {"model_nam", "--model_name?"}));
  for (const auto& [text, said] :
       {std::pair{"[train]\nbatch_size = 4\n", "section [train]: sections are not allowed"},
        {"batch_size = 4\nbatch-size = 5\n", "batch_size: is there twice"},
        {"batch_size = []\n", "batch_size: got no values, want one"},
        {"batch_size = [3, 4]\n", "batch_size: got 2 values, want one"}}) {
    WriteText(folder / "bad.toml", text);
    EXPECT_TRUE(FailsWith(Carole({"train", "--config", folder / "bad.toml"}), 64, {said}));
  }
  EXPECT_TRUE(FailsWith(Carole({"train", "--config", folder / "none.toml"}), 64, {"none.toml"}));
  EXPECT_TRUE(FailsWith(Carole({"train", "--config", "/dev/zero"}), 64, {"not a regular file"}));
  std::ofstream(folder / "long.toml") << std::string((1 << 20) + 1, '#');
  EXPECT_TRUE(FailsWith(Carole({"train", "--config", folder / "long.toml"}), 64,
                        {"got 1048577 bytes, want at most 1048576"}));
}

TEST(ProgramTest, FlagFilesAreReadAsAbslReadsThem) {
  TemporaryFolder folder;
  WriteText(folder / "inner", "  --model_name=lennet\n");
  WriteText(folder / "outer", "# a run\n\n// of\n--batch_size=4\n--flagfile=" + folder / "inner");
  for (const Words& words : {Words{"train", "--flagfile=" + folder / "outer"},
                             Words{"train", "-flagfile", folder / "outer"},
                             Words{"train", "--model_name=x", "--flagfile=" + folder / "outer"}})
    EXPECT_TRUE(FailsWith(Carole(words), 64, {"lennet", "lenet"}));
  EXPECT_TRUE(
      FailsWith(Carole({"train", "--flagfile=" + folder / "outer", "--model_name=cifarnat"}), 64,
                {"cifarnet"}));  // the last of several wins
  WriteText(folder / "round", "--flagfile=" + folder / "round");
  EXPECT_TRUE(
      FailsWith(Carole({"train", "--flagfile=" + folder / "round"}), 64, {"includes itself"}));
  EXPECT_TRUE(
      FailsWith(Carole({"train", "--flagfile=" + folder / "none"}), 64, {"none: cannot be read"}));
  EXPECT_TRUE(FailsWith(Carole({"train", "--flagfile=/dev/zero"}), 64, {"not a regular file"}));
  const std::string pipe = folder / "pipe";  // nobody writes to it
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(FailsWith(Carole({"train", "--flagfile=" + pipe}), 64, {"not a regular file"}));
  EXPECT_TRUE(FailsWith(Carole({"train", "--flagfile"}), 64, {"its value is missing"}));
  WriteText(folder / "run.toml", "flagfile = \"" + folder / "inner" + "\"\n");
  EXPECT_TRUE(FailsWith(Carole({"train", "--config", folder / "run.toml"}), 64, {"flagfile"}));
}

TEST(ProgramTest, ModelsAreListedAndSummarized) {
  const ProcessResult list = RunToEnd({"model", "list"});
  for (const char* net : {"lenet", "cifarnet", "resnet_v1_50", "resnet_v2_50"})
    EXPECT_NE(list.out.find(net), std::string::npos) << net;
  const ProcessResult summary = RunToEnd({"model", "summary", "lenet"});
  EXPECT_NE(summary.out.find("3274634 trainable"), std::string::npos) << summary.out;
  EXPECT_NE(summary.out.find("LeNet/conv1"), std::string::npos) << summary.out;
  EXPECT_NE(summary.out.find(" conv_relu 2 linear_relu 1"), std::string::npos) << summary.out;
}

}  // namespace
}  // namespace carole::testing
