// Impossible nets, checkpoints of other nets, and training in little memory.
#include <regex>

#include "tests/cli/cli.h"

namespace carole::testing {
namespace {

class NetTest : public CliTest {
 protected:
  ProcessResult Train(const Words& more) { return Carole(TrainWords(train_dir_, more)); }
};

// Returns the text that follows "[eval] step N: " in the log.
std::string EvaluationIn(const std::string& log) {
  std::smatch found;
  return std::regex_search(log, found, std::regex(R"(\[eval\] step \d+: (.*))")) ? found[1].str()
                                                                                 : "none in " + log;
}

TEST_F(NetTest, ImpossibleNetsAreWrongUsage) {
  EXPECT_TRUE(FailsWith(Train({"--model_name=lenett"}), 64,
                        {"--model_name", "got lenett", "did you mean lenet?"}));
  EXPECT_TRUE(FailsWith(Train({"--train_image_size=3"}), 64,
                        {"lenet", "image size", "got 3", "want 4 to 4096 pixels"}));
  EXPECT_TRUE(
      FailsWith(Train({"--labels_offset=15"}), 64,
                {"--labels_offset=15: too few classes are left: got 0 of the 10 classes in ",
                 "(zero, one, two and 7 more), want 2 or more", "set at most 8"}));
  EXPECT_TRUE(FailsWith(Train({"--batch_size=0"}), 64,
                        {"--batch_size: got 0, want a whole number above 0"}));
  for (const std::string flag : {"--batch_size", "--accumulation_steps"})
    EXPECT_TRUE(FailsWith(Train({flag + "=4611686018427387904"}), 64, {flag, "want at most"}));
  EXPECT_TRUE(FailsWith(Train({"--save_summaries_secs=-1"}), 64,
                        {"--save_summaries_secs: got -1, want a number of at least 0"}));
  EXPECT_TRUE(FailsWith(Carole({"model", "summary", "lenet", "--num_classes=0"}), 64,
                        {"--num_classes: got 0, want a whole number above 0"}));
  EXPECT_TRUE(FailsWith(Carole({"model", "summary", "lenet", "--num_classes=1"}), 64,
                        {"lenet", "number of classes", "got 1, want 2 to"}));
  EXPECT_TRUE(FailsWith(Carole({"model", "summary", "vgg_16", "--image_size=100"}), 64,
                        {"vgg_16", "got 100", "want 224 to 255 pixels"}));
  EXPECT_TRUE(
      FailsWith(Carole({"model", "summary", "resnet-v1-50"}), 64, {"did you mean resnet_v1_50?"}));
}

TEST_F(NetTest, CheckpointOfAnotherNetNamesTheFirstVariablesThatDiffer) {
  ASSERT_EQ(Train({"--max_number_of_steps=1"}).exit_code, 0);
  EXPECT_TRUE(
      FailsWith(Train({"--model_name=cifarnet"}), 65,
                {"model.ckpt-1.h5", "of another net", "CifarNet/conv1/weights is missing"}));
  EXPECT_TRUE(FailsWith(Carole(EvalWords(train_dir_, {"--model_name=cifarnet"})), 65,
                        {"model.ckpt-1.h5", "missing CifarNet/conv1/weights"}));
}

// The error for too little memory names the minimum. Training with that gives the same bits.
TEST_F(NetTest, TrainsInLittleMemory) {
  EXPECT_TRUE(FailsWith(Train({"--activation_memory=much"}), 64, {"--activation_memory", "much"}));
  const Words net = {"--model_name=inception_v2",  "--train_image_size=33",   "--batch_size=16",
                     "--preprocessing_name=lenet", "--max_number_of_steps=2", "--eval_every=2",
                     "--eval_batch_size=400"};
  auto train = [&](const std::string& folder, const std::string& memory) {
    Words more = net;
    if (!memory.empty()) more.push_back("--activation_memory=" + memory);
    return Carole(TrainWords(folder_ / folder, more));
  };
  const ProcessResult refused = train("none", "0.0001");
  EXPECT_TRUE(FailsWith(refused, 64, {"--activation_memory", "want at least"}));
  const size_t at = refused.err.find("want at least ");
  ASSERT_NE(at, std::string::npos);
  const std::string least = refused.err.substr(at + 14, refused.err.find(';', at) - at - 14);
  const ProcessResult plain = train("plain", ""), little = train("little", least),
                      automatic = train("auto", "auto");
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  ASSERT_EQ(little.exit_code, 0) << little.err;
  ASSERT_EQ(automatic.exit_code, 0) << automatic.err;
  EXPECT_THAT(little.err, ::testing::HasSubstr("of the forward pass is computed twice"));
  EXPECT_THAT(little.err, ::testing::ContainsRegex("evaluation uses batches of [0-9]+ images"));
  EXPECT_EQ(EvaluationIn(little.err), EvaluationIn(plain.err));
  EXPECT_THAT(automatic.err, ::testing::Not(::testing::HasSubstr("is computed twice")));
  EXPECT_EQ(DigestOf(folder_ / "little"), DigestOf(folder_ / "plain"));
  EXPECT_EQ(DigestOf(folder_ / "auto"), DigestOf(folder_ / "plain"));
}

// Other programs may take or free memory between two runs, so there is a tolerance, and a few
// tries.
TEST_F(NetTest, RanksOfAHostShareItsMemory) {
  auto gib = [&](int ranks) {
    const ProcessResult result =
        RunToEnd(TrainWords(folder_ / std::to_string(ranks),
                            {"--max_number_of_steps=1", "--activation_memory=auto"}),
                 ranks);
    std::smatch found;
    EXPECT_TRUE(std::regex_search(result.err, found, std::regex(R"(a rank can have ([\d.]+) GiB)")))
        << result.err;
    return found.empty() ? 0.0 : std::stod(found[1]);
  };
  double ratio = 0;
  for (int i = 0; i < 5 && !(ratio > 1.3 && ratio < 3); ++i) {
    ratio = gib(1) / gib(2);
    std::filesystem::remove_all(folder_ / "1");
    std::filesystem::remove_all(folder_ / "2");
  }
  EXPECT_THAT(ratio, ::testing::AllOf(::testing::Gt(1.3), ::testing::Lt(3.0)));
}

}  // namespace
}  // namespace carole::testing
