#include "src/commands/cli/command_line.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>

#include "src/core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_of.h"

namespace carole::commands {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum class Color { kRed, kBlue };

struct Values {
  int64_t batch_size = 32;
  int threads = 0;
  double rate = 0.01;
  double share = 0.5;
  double max_time = 0;
  bool sync = true;
  std::string name = "lenet";
  std::string color_name = "red";
  Color color = Color::kRed;
  std::vector<double> factors = {1, 0.5};
};

class CommandLineTest : public ::testing::Test {
 protected:
  CommandLineTest() {
    line_.AddPositive("batch_size,batch", values_.batch_size, "Images.");
    line_.Add("threads", values_.threads, "Threads.").Between(0, 4096);
    line_.Add("rate", values_.rate, "Rate.");
    line_.Add("share", values_.share, "Share.").Between(0, 1);
    line_.Add("max_time", values_.max_time, "Seconds.").AllowTimeUnits().NonNegative();
    line_.Add("sync", values_.sync, "Whether to wait.");
    line_.Add("name", values_.name, "Name.");
    line_.Add("color_name", values_.color_name, "Color.").OneOf({"red", "blue"});
    line_.AddChoice<Color>("color", values_.color, {{"red", Color::kRed}, {"blue", Color::kBlue}},
                           "Color.");
    line_.Add("factors", values_.factors, "Factors.").Positive();
    line_.AddIgnored("task", "there are no tasks");
    line_.AddValueAlias("size", "name", "resnet_{}", "18,50");
  }

  Values Parse(const std::vector<std::string>& words) {
    EXPECT_TRUE(line_.Parse(words));
    return values_;
  }

  std::string Refuse(const std::vector<std::string>& words) {
    return TextOf<UsageError>([&] { line_.Parse(words); });
  }

  Values values_;
  CommandLine line_{"carole test", "Tests.", {"carole test"}};
};

TEST_F(CommandLineTest, AValueFollowsOrIsInTheSameWord) {
  const Values values = Parse({"--batch_size", "8", "-rate=0.5", "--name=a=b", "--threads", "0"});
  EXPECT_EQ(values.batch_size, 8);
  EXPECT_EQ(values.rate, 0.5);
  EXPECT_EQ(values.name, "a=b");
  EXPECT_EQ(values.color, Color::kRed);
}

TEST_F(CommandLineTest, TheLastOfSeveralWinsUnderItsFirstName) {
  EXPECT_EQ(Parse({"--batch=8", "--batch-size=4", "--factors=1,2", "--factors=3"}).batch_size, 4);
  EXPECT_THAT(values_.factors, ElementsAre(3));
  EXPECT_EQ(JoinFlags(line_.given_flags()), "--batch_size=4 --factors=3");
  EXPECT_TRUE(line_.IsGiven("batch"));
  EXPECT_FALSE(line_.IsGiven("rate"));
}

TEST_F(CommandLineTest, BoolsHaveThreeForms) {
  EXPECT_FALSE(Parse({"--nosync"}).sync);
  EXPECT_TRUE(Parse({"--sync"}).sync);
  EXPECT_FALSE(Parse({"--sync=False"}).sync);
  EXPECT_TRUE(Parse({"--nosync=0"}).sync);
  EXPECT_FALSE(Parse({"--sync", "f"}).sync);
  EXPECT_EQ(line_.given_flags().at("sync"), "false");
}

TEST_F(CommandLineTest, NextWordIsAFileIfTheCommandTakesFiles) {
  std::vector<std::string> files;
  line_.AddPositional("FILE", files, "Files.");
  EXPECT_TRUE(Parse({"--sync", "0", "a,b", "--", "--c"}).sync);
  EXPECT_THAT(files, ElementsAre("0", "a,b", "--c"));
}

TEST_F(CommandLineTest, ListsSkipEmptyEntries) {
  EXPECT_THAT(Parse({"--factors=1,, 2.5 ,"}).factors, ElementsAre(1, 2.5));
  EXPECT_THAT(Parse({"--factors="}).factors, ElementsAre());
}

TEST_F(CommandLineTest, SecondsMayHaveAUnit) {
  EXPECT_EQ(Parse({"--max_time=90"}).max_time, 90);
  EXPECT_EQ(Parse({"--max_time=1.5h"}).max_time, 5400);
  EXPECT_EQ(Parse({"--max_time=2 d"}).max_time, 172800);
  EXPECT_THAT(Refuse({"--max_time=2w"}), HasSubstr("got 2w, want a number of at least 0"));
  EXPECT_THAT(Refuse({"--max_time=-2h"}), HasSubstr("got -2h, want a number of at least 0"));
}

TEST_F(CommandLineTest, ChoicesHaveNames) {
  EXPECT_EQ(Parse({"--color=blue"}).color, Color::kBlue);
  EXPECT_THAT(Refuse({"--color=green"}), HasSubstr("--color: got green, want one of red, blue;"));
  EXPECT_THAT(Refuse({"--color_name="}), HasSubstr("got nothing, want one of red, blue;"));
}

TEST_F(CommandLineTest, RefusesWhatAFlagDoesNotAllow) {
  for (const auto& [word, wanted] :
       {std::pair{"--batch_size=0", "got 0, want a whole number above 0"},
        {"--batch_size=1e3", "got 1e3, want a whole number above 0"},
        {"--threads=4097", "got 4097, want 0 to 4096"},
        {"--threads=-1", "got -1, want 0 to 4096"},
        {"--share=1.5", "got 1.5, want 0 to 1"},
        {"--threads=+", "got +, want 0 to 4096"},
        {"--rate=1e999", "got 1e999, want a number"},
        {"--rate=-inf", "got -inf, want a finite number"},
        {"--factors=1,x", "got x, want a number above 0"},
        {"--factors=1,0", "got 0, want a number above 0"},
        {"--name=gs://bucket/x", "want a path on this machine"},
        {"--sync=2", "got 2, want true or false"},
        {"--size=19", "got 19, want one of 18,50"},
        {"--bath_size=1", "no such flag; did you mean --batch_size?"},
        {"--notask=1", "no such flag"},
        {"stray", "stray: is not a flag"}})
    EXPECT_THAT(Refuse({word}), HasSubstr(wanted));
  EXPECT_THAT(Refuse({"--rate"}), HasSubstr("--rate: its value is missing, want a number"));
  EXPECT_THAT(Refuse({"--rate", "--sync"}), HasSubstr("--rate: its value is missing"));
  EXPECT_THAT(Refuse({"--size"}), HasSubstr("--size: its value is missing"));
}

TEST_F(CommandLineTest, ANegativeNumberIsAValue) {
  EXPECT_EQ(Parse({"--rate", "-0.5"}).rate, -0.5);
  EXPECT_EQ(Parse({"--rate=+0.5"}).rate, 0.5);
}

TEST_F(CommandLineTest, RequiredFlagsMustBeGiven) {
  std::string folder, file;
  line_.Add("folder", folder, "Folder.").Required();
  EXPECT_THAT(Refuse({}), HasSubstr("carole test: --folder: missing; see carole test --help"));
  line_.AddPositional("FILE", file, "File.").Required();
  EXPECT_THAT(Refuse({"--folder=x"}), HasSubstr("carole test: FILE: missing"));
  EXPECT_THAT(Refuse({"--folder=x", "a", "b"}), HasSubstr("b: is not a flag"));
}

TEST_F(CommandLineTest, PathsMayBeginWithTheHomeFolder) {
  std::string path, list, file;
  line_.AddPath("path", path, "Path.");
  line_.AddPathList("list", list, "Paths.");
  line_.AddPositionalPath("FILE", file, "File.");
  const std::string home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  setenv("HOME", "/h/ann", 1);
  Parse({"--path=~/run~", "--list=a, ~/b,~", "--name=~/x", "~/photo.jpg"});
  EXPECT_EQ(path, "/h/ann/run~");
  EXPECT_EQ(line_.given_flags().at("path"), path);
  EXPECT_EQ(list, "a,/h/ann/b,/h/ann");
  EXPECT_EQ(values_.name, "~/x");
  EXPECT_EQ(file, "/h/ann/photo.jpg");
  Parse({"--path", "~"});
  EXPECT_EQ(path, "/h/ann");
  Parse({"--path=./~bob/run"});
  EXPECT_EQ(path, "./~bob/run");
  EXPECT_THAT(Refuse({"--path=~bob/run"}), HasSubstr("--path: got ~bob/run, want a path whose "
                                                     "beginning is not ~bob; write ./~bob/run"));
  EXPECT_THAT(Refuse({"--list=a,~bob"}), HasSubstr("--list: got ~bob, want"));
  EXPECT_THAT(Refuse({"~bob"}), HasSubstr("FILE: got ~bob, want"));
  unsetenv("HOME");
  EXPECT_THAT(Refuse({"--path=~/run"}),
              HasSubstr("got ~/run, want a path without ~, since HOME is not set"));
  setenv("HOME", home.c_str(), 1);
}

TEST_F(CommandLineTest, DefaultsDoNotReplaceWhatWasGiven) {
  Parse({"--batch_size=8"});
  for (const char* flag : {"batch_size", "threads", "no_such_flag"}) line_.SetDefault(flag, "2");
  EXPECT_EQ(values_.batch_size, 8);
  EXPECT_EQ(values_.threads, 2);
  EXPECT_FALSE(line_.IsGiven("threads"));
}

TEST_F(CommandLineTest, ArgparseAbbreviates) {
  line_.ParseLikeArgparse("batch_size threads sync no_such_flag");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Parse({"--ba=4", "--thr", "3", "--nos"}).batch_size, 4);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("--ba: taken for --batch_size"));
  EXPECT_EQ(values_.threads, 3);
  EXPECT_FALSE(values_.sync);
  EXPECT_THAT(Refuse({"--ra=1"}), HasSubstr("no such flag"));
}

TEST_F(CommandLineTest, FlagsOfOtherProgramsAreKnownByTheirMeaning) {
  std::string folder;
  line_.AddPath("train_dir", folder, "Folder.");
  line_.AddPath("work_dir", folder, "Folder.");
  line_.Add("save_interval_secs", values_.rate, "Seconds.");
  line_.Add("eval_batch_size", values_.batch_size, "Images.");
  for (const auto& [word, advice] :
       {std::pair{"--model_dir=x", "did you mean --train_dir?"},
        {"--bs=8", "did you mean --batch_size?"},
        {"--val-batch-size=8", "did you mean --eval_batch_size?"},
        {"--save_checkpoints_secs=8", "did you mean --save_interval_secs?"},
        {"--save_steps=8", "did you mean --save_interval_secs, which counts seconds?"},
        {"--num_classes=3", "has no such flag; labels.txt in --dataset_dir lists the classes"},
        {"--nproc_per_node=2", "has no such flag; mpirun -np N or srun starts N ranks"},
        {"--dropout=0.5", "has no such flag; each net has its own dropout"},
        {"--jpeg_decoder=cpu", "has no such flag; leave it out: the cores decode all JPEGs"},
        {"--lr=1", "has no such flag; see --helpfull"}})
    EXPECT_THAT(Refuse({word}), HasSubstr(advice));
  line_.Add("max_steps_per_epoch", values_.batch_size, "Steps.");
  line_.ParseLikeArgparse("eval_batch_size max_steps_per_epoch");
  EXPECT_THAT(Refuse({"--max_steps=1"}),
              HasSubstr("--max_steps: is short for --max_steps_per_epoch, but another flag"));
}

TEST_F(CommandLineTest, AliasesTranslateTheirValue) {
  EXPECT_EQ(Parse({"--size", "50"}).name, "resnet_50");
  EXPECT_EQ(JoinFlags(line_.given_flags()), "--name=resnet_50");
}

class ConfigFileTest : public CommandLineTest {
 protected:
  std::string Write(const std::string& text) {
    std::ofstream(folder_ / "run.toml") << text;
    return "--config=" + (folder_ / "run.toml");
  }
  TemporaryFolder folder_;
};

TEST_F(ConfigFileTest, HoldsTextsNumbersBoolsAndArrays) {
  Parse(
      {Write("# a run\n\nbatch-size = 8 # images\nname = \"a # \\\"b\\\"\"\r\nsync = false\n"
             "factors = [\n  1, # first\n  2.5,\n]\ncolor='blue'\nthreads=4")});
  EXPECT_EQ(values_.batch_size, 8);
  EXPECT_EQ(values_.name, "a # \"b\"");
  EXPECT_FALSE(values_.sync);
  EXPECT_THAT(values_.factors, ElementsAre(1, 2.5));
  EXPECT_EQ(values_.color, Color::kBlue);
  EXPECT_EQ(values_.threads, 4);
  EXPECT_EQ(line_.given_flags().at("factors"), "1,2.5");
}

TEST_F(ConfigFileTest, TheCommandLineWins) {
  EXPECT_EQ(Parse({"--batch=4", Write("batch_size = 8\nsize = 18\n")}).batch_size, 4);
  EXPECT_EQ(values_.name, "resnet_18");
}

TEST_F(ConfigFileTest, ErrorsNameTheLine) {
  for (const auto& [text, problem] :
       {std::pair{"rate = 1\n[train]\nrate = 2\n", "run.toml:2: section [train]: sections are not"},
        {"rate = 1\n\nrate = 2\n", "run.toml:3: rate: is there twice"},
        {"rate\n", "run.toml:1: got rate, want NAME = VALUE"},
        {"= 1\n", "want NAME = VALUE"},
        {"rate =\n", "run.toml:1: its value is missing"},
        {"rate = 1 2\n", "run.toml:1: rate: got text after its value"},
        {"name = \"a\nrate = 1\n", "run.toml:1: got a text without its closing quote"},
        {"name = \"\\q\"\n", "run.toml:1: unknown escape"},
        {"factors = [1 2]\n", "run.toml:1: got an array without an end"},
        {"factors = [1,\n", "its value is missing"},
        {"rate = [1, 2]\n", "[config] rate: got 2 values, want one"},
        {"rate = fast\n", "--rate: got fast, want a number"},
        {"help = true\n", "[config] help: is allowed on the command line only"},
        {"rat = 1\n", "did you mean --rate?"}})
    EXPECT_THAT(Refuse({Write(text)}), HasSubstr(problem));
}

}  // namespace
}  // namespace carole::commands
