// The checkpoint commands, on this program's checkpoints and on those of TensorFlow and Keras.
#include <filesystem>

#include "tests/cli/cli.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_data.h"

namespace carole::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

const std::string kFixtures = TestData() + "/tf_checkpoints/";

class CheckpointCliTest : public CliTest {
 protected:
  ProcessResult Convert(const std::string& source, const std::string& target,
                        const Words& more = {}) {
    Words words{"checkpoint", "convert", source, target};
    words.insert(words.end(), more.begin(), more.end());
    return Carole(words);
  }
};

TEST_F(CheckpointCliTest, ConvertsToTensorFlowAndBackWithSlotsAndStep) {
  RunToEnd(TrainWords(train_dir_, {"--max_number_of_steps=2", "--optimizer=rmsprop"}));
  const std::string prefix = folder_ / "tf/model.ckpt-2", again = folder_ / "again/model.ckpt-2";
  const std::string back = folder_ / "model.ckpt-2.h5";
  const ProcessResult first = Convert(train_dir_, prefix);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("lenet, step 2: 8 variables, 16 slots"));
  const ProcessResult all = Carole({"checkpoint", "inspect", "--all", folder_ / "tf"});
  EXPECT_THAT(all.out, HasSubstr("LeNet/conv1/weights/RMSProp_1"));
  EXPECT_THAT(all.out, HasSubstr("other: global_step int64 []"));
  const ProcessResult summary = Carole({"checkpoint", "inspect", folder_ / "tf"});
  EXPECT_THAT(summary.out, ::testing::Not(HasSubstr("RMSProp_1")));
  EXPECT_THAT(summary.out, HasSubstr("step 2\nsize 37.5 MiB\ntensors (24, 9823902 values"));
  EXPECT_THAT(summary.out, ContainsRegex("\n  LeNet/conv1 +6 tensors +2496 values\n"));
  const ProcessResult own = Carole({"checkpoint", "inspect", train_dir_});
  EXPECT_THAT(own.out, ContainsRegex("variables \\(8, 3274634 values; --all lists them\\)\n"
                                     "  LeNet/conv1 +2 tensors +832 values\n"));
  EXPECT_THAT(own.out, HasSubstr("slots (16, 6549268 values; --all lists them)\n"));

  ASSERT_EQ(Convert(folder_ / "tf", back).exit_code, 0);
  RunToEnd({"checkpoint", "verify", back});
  ASSERT_EQ(Convert(back, again).exit_code, 0);
  for (const char* suffix : {".index", ".data-00000-of-00001"})
    EXPECT_EQ(ReadText(prefix + suffix), ReadText(again + suffix)) << suffix;
}

TEST_F(CheckpointCliTest, MovingAveragesBecomeTheWeights) {
  const std::string averaged = folder_ / "averaged.h5", plain = folder_ / "plain";
  const ProcessResult run =
      RunToEnd(TrainWords(train_dir_, {"--max_number_of_steps=3", "--learning_rate=0.1",
                                       "--moving_average_decay=0.9"}));
  EXPECT_THAT(run.err, HasSubstr("carole predict --checkpoint_path=" + train_dir_ +
                                 " --moving_average_decay=0.9 IMAGE"));
  const ProcessResult first = Convert(train_dir_, averaged, {"--moving_averages"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("8 of 8 variables were replaced by their moving averages"));
  const Words flag = {"--moving_average_decay=0.9"};
  const ProcessResult trained = Carole(EvalWords(train_dir_));
  EXPECT_THAT(trained.err, HasSubstr("also has moving averages; use --moving_average_decay"));
  const std::string wanted = Carole(EvalWords(train_dir_, flag)).out;
  EXPECT_NE(wanted, trained.out);
  EXPECT_EQ(Carole(EvalWords(averaged)).out, wanted);
  EXPECT_TRUE(
      FailsWith(Convert(averaged, plain, {"--moving_averages"}), 65, {"has no moving averages"}));
}

TEST_F(CheckpointCliTest, ResNetGetsTheNamesOfEitherProgram) {
  const std::string one = folder_ / "one/model.ckpt-1", two = folder_ / "two/model.ckpt-1";
  RunToEnd(TrainWords(train_dir_, {"--max_number_of_steps=1", "--batch_size=1",
                                   "--model_name=imagenet_resnet_v2_18", "--train_image_size=64",
                                   "--preprocessing_name=lenet"}));
  ASSERT_EQ(Convert(train_dir_, one).exit_code, 0);
  ASSERT_EQ(Convert(train_dir_, two, {"--tf2_names"}).exit_code, 0);
  const auto names = [](const std::string& prefix) {
    return Carole({"checkpoint", "inspect", "--all", prefix}).out;
  };
  EXPECT_THAT(names(one), HasSubstr("resnet/dense/kernel"));
  EXPECT_THAT(names(two),
              ::testing::AllOf(HasSubstr("dense/kernel"), ::testing::Not(HasSubstr("resnet/"))));
  ASSERT_EQ(Convert(two, folder_ / "back/model.ckpt-1").exit_code, 0);
  EXPECT_EQ(ReadText(one + ".data-00000-of-00001"),
            ReadText(folder_ / "back/model.ckpt-1.data-00000-of-00001"));
}

// The net and the training settings for Keras are kept, with the run's image size.
TEST_F(CheckpointCliTest, KeepsTheSettingsForKeras) {
  RunToEnd(TrainWords(train_dir_, {"--max_number_of_steps=1", "--train_image_size=32"}));
  const std::string target = folder_ / "out.h5";
  ASSERT_EQ(Convert(train_dir_, target).exit_code, 0);
  const std::string bytes = ReadText(target), before = ReadText(train_dir_ + "/model.ckpt-1.h5");
  for (const char* words : {"\"batch_input_shape\":[null,32,32,1]", "training_config", "\"SGD\""}) {
    EXPECT_NE(before.find(words), std::string::npos) << words;
    EXPECT_NE(bytes.find(words), std::string::npos) << words;
  }
  EXPECT_TRUE(FailsWith(Convert(train_dir_, target, {"--image_size=99999"}), 64, {"99999"}));
}

// Training resumes from TensorFlow's checkpoint in train_dir; --checkpoint_path is then ignored.
TEST_F(CheckpointCliTest, TrainingResumesFromTensorFlowsCheckpoint) {
  const std::string first = folder_ / "first", latest = train_dir_ + "/model.ckpt-2";
  RunToEnd(TrainWords(first, {"--max_number_of_steps=2"}));
  ASSERT_EQ(Convert(first, latest).exit_code, 0);
  WriteText(train_dir_ + "/checkpoint", "# by hand\n model_checkpoint_path:'model.ckpt-2'");
  EXPECT_TRUE(FailsWith(Carole(TrainWords(train_dir_, {"--optimizer=adam"})), 65,
                        {latest + ": slot LeNet/conv1/weights/Adam", "--optimizer"}));
  const Words done = {"--max_number_of_steps=2", "--final_model=last.h5"};
  const std::string left[] = {train_dir_ + "/.last.h5.host-7-0.tmp",
                              train_dir_ + "/.evaluated.host-7-0.tmp"};
  for (const std::string& path : left) std::ofstream(path) << "by one that was killed";
  EXPECT_THAT(Carole(TrainWords(train_dir_, done)).err,
              HasSubstr("last.h5 is a copy of " + latest));
  for (const std::string& path : left) EXPECT_FALSE(std::filesystem::exists(path));
  std::filesystem::remove(latest + ".h5");
  const ProcessResult run = RunToEnd(
      TrainWords(train_dir_, {"--max_number_of_steps=3", "--checkpoint_path=" + first}), 2);
  EXPECT_THAT(run.err, HasSubstr("resuming from " + latest + " at step 2"));
  EXPECT_THAT(run.err, HasSubstr("Ignoring --checkpoint_path"));
  EXPECT_THAT(Carole(TrainWords(train_dir_, {"--max_number_of_steps=3"})).err,
              HasSubstr("resuming from " + train_dir_ + "/model.ckpt-3.h5 at step 3"));
}

TEST(CheckpointCli, InspectsTensorFlowsCheckpoints) {
  for (const char* name : {"v1.ckpt", "v2.ckpt", "v2.ckpt.index"}) {
    const ProcessResult shown = RunToEnd({"checkpoint", "inspect", "--all", kFixtures + name});
    EXPECT_THAT(shown.out, HasSubstr("step 3000000017"));
    EXPECT_THAT(shown.out, HasSubstr("float16   [5]"));
  }
  EXPECT_THAT(Carole({"checkpoint", "inspect", "--json", kFixtures + "v1.ckpt"}).out,
              HasSubstr(R"({"name":"net/logits/weights","type":"float32","shape":"[4,3]"})"));
}

TEST(CheckpointCli, VerifiesTensorFlowsCheckpoints) {
  const TemporaryFolder folder;
  std::filesystem::copy(kFixtures, folder.path(), std::filesystem::copy_options::recursive);
  for (const char* name : {"v1.ckpt", "v2.ckpt"}) {
    const ProcessResult good = RunToEnd({"checkpoint", "verify", folder / name});
    EXPECT_THAT(good.out, HasSubstr("tensors, all good"));
  }
  const std::string data = folder / "v2.ckpt.data-00000-of-00001";
  std::string bytes = ReadText(data);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  WriteText(data, bytes);
  for (const char* command : {"verify", "inspect"})
    EXPECT_TRUE(FailsWith(Carole({"checkpoint", command, folder / "v2.ckpt"}), 65, {"checksum"}));
  EXPECT_TRUE(FailsWith(Carole({"checkpoint", "verify", folder / "none.h5"}), 74, {"none.h5"}));
  const ProcessResult both =
      Carole({"checkpoint", "verify", folder / "v2.ckpt", folder / "v1.ckpt"});
  EXPECT_TRUE(FailsWith(both, 65, {"1 of 2 checkpoints are bad"}));
  EXPECT_THAT(both.err, HasSubstr("v2.ckpt: parts/weights: checksum mismatch"));
  EXPECT_THAT(both.out, HasSubstr("v1.ckpt"));
}

TEST(CheckpointCli, RefusesBadFilesAndFlags) {
  TemporaryFolder folder;
  const std::string target = folder.path() + "/x.h5", cut = folder.path() + "/cut.index";
  EXPECT_TRUE(FailsWith(Carole({"checkpoint", "convert", folder.path(), folder / "x.weights.h5"}),
                        64, {"want NAME.h5"}));
  EXPECT_TRUE(FailsWith(Carole({"checkpoint", "convert", folder.path(), target}), 65,
                        {"no checkpoint found; give the path of a file, or"}));
  WriteText(folder / "mnist.h5", "");
  EXPECT_TRUE(FailsWith(Carole({"checkpoint", "inspect", folder.path()}), 65,
                        {"no checkpoint found; give the path of a file such as", "mnist.h5"}));
  WriteText(folder / "mnist.keras", "PK");
  EXPECT_TRUE(
      FailsWith(Carole({"checkpoint", "inspect", folder / "mnist.keras"}), 65,
                {"mnist.keras: is not a checkpoint: got another kind of file, want an .h5"}));
  WriteText(cut, ReadText(kFixtures + "v2.ckpt.index").substr(0, 300));
  EXPECT_TRUE(FailsWith(Carole({"checkpoint", "convert", cut, target}), 65,
                        {"cut.index", "is it truncated?"}));
  const std::string v2 = kFixtures + "v2.ckpt";
  EXPECT_TRUE(FailsWith(
      Carole({"checkpoint", "convert", v2, target, "--model_name=vgg_16", "--image_size=999"}), 64,
      {"got 999, want 224 to 255"}));
  EXPECT_TRUE(FailsWith(Carole({"checkpoint", "convert", v2, target, "--image_size=99999"}), 64,
                        {"--image_size: got 99999, but no net"}));
  EXPECT_TRUE(FailsWith(Carole({"checkpoint", "convert", v2, target, "--image_size=-5"}), 64,
                        {"--image_size: got -5"}));
  for (const std::string name : {"x.keras", "x.onnx", "x.tflite", "model.ckpt-1.npz", "x.H5"})
    EXPECT_TRUE(FailsWith(Carole({"checkpoint", "convert", v2, folder / name}), 64,
                          {name + ": unsupported file name ending: got .", "want .h5"}));
  for (const char* name : {"plain", "model.ckpt", "net_v1_0.25_128"})
    EXPECT_EQ(Carole({"checkpoint", "convert", v2, folder / name}).exit_code, 0) << name;
  EXPECT_TRUE(FailsWith(Carole({"checkpoint", "convert", v2, target, "--model_name=lenet"}), 65,
                        {"is no checkpoint of lenet: it lacks 8 variables: LeNet/conv1/weights"}));
  EXPECT_TRUE(FailsWith(Carole({"checkpoint", "convert", v2, target, "--model_name=lemet"}), 64,
                        {"did you mean lenet"}));
  for (const std::string& place : {folder.path(), folder.path() + "/new/"})
    EXPECT_TRUE(FailsWith(Carole({"checkpoint", "convert", v2, place}), 64,
                          {"[checkpoint] " + place + ": is a folder; name a file"}));
  EXPECT_FALSE(std::filesystem::exists(target));
  EXPECT_THAT(RunToEnd({"checkpoint", "convert", kFixtures + "sharded.ckpt", folder / "m"}).err,
              HasSubstr("sharded.ckpt: stores no global_step; the new file gets step 0"));
}

}  // namespace
}  // namespace carole::testing
