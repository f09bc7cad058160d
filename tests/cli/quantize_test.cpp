// Quantization-aware training as users run it.
#include <map>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "tests/cli/cli.h"

namespace carole::testing {
namespace {

using ::testing::HasSubstr;

class QuantizeTest : public CliTest {
 protected:
  ProcessResult Train(const std::string& train_dir, int steps, const Words& more = {},
                      int ranks = 1) {
    return RunToEnd(Arguments(train_dir, steps, more), ranks);
  }
  Words Arguments(const std::string& train_dir, int steps, const Words& more = {}) const {
    Words words = {"--model_name=mobilenet_v1_025", "--train_image_size=32", "--batch_size=8",
                   "--threads=1", "--max_number_of_steps=" + std::to_string(steps)};
    words.insert(words.end(), more.begin(), more.end());
    return TrainWords(train_dir, words);
  }

  Words Eval(const std::string& checkpoint, const Words& more) const {
    Words words = {"--model_name=mobilenet_v1_025", "--eval_image_size=32"};
    words.insert(words.end(), more.begin(), more.end());
    return EvalWords(checkpoint, words);
  }

  // The values of all variables of the newest checkpoint, by name.
  static std::map<std::string, std::vector<float>> Variables(const std::string& folder) {
    std::map<std::string, std::vector<float>> values;
    const auto latest = io::ReadLatest(folder);
    EXPECT_TRUE(latest) << folder << " has no checkpoint";
    if (!latest) return values;
    for (const auto& v : latest->checkpoint.variables) values[v.name] = v.data;
    return values;
  }
};

TEST_F(QuantizeTest, ResumesBitwise) {
  const Words delay = {"--quantize_delay=6"};
  Train(folder_ / "whole", 10, delay);
  Train(train_dir_, 4, delay);
  Train(train_dir_, 10, delay);
  EXPECT_EQ(DigestOf(train_dir_), DigestOf(folder_ / "whole"));
  const auto variables = Variables(train_dir_);
  EXPECT_EQ(variables.at("fake_quantization_step")[0], 10);
  const std::string quant = "MobilenetV1/MobilenetV1/Conv2d_0/act_quant";
  EXPECT_EQ(variables.at(quant + "/" + quant + "/max/local_step")[0], 10);
  EXPECT_GT(variables.at(quant + "/max")[0], 0);
}

// The replicas are compared after each step, with their ranges.
TEST_F(QuantizeTest, RanksHaveEqualRanges) {
  const ProcessResult run =
      Train(train_dir_, 5, {"--quantize_delay=0", "--audit_every_n_steps=1"}, 2);
  EXPECT_THAT(run.err, ::testing::Not(HasSubstr("[audit]")));
}

TEST_F(QuantizeTest, IsReproducibleOnAnyNumberOfRanks) {
  const Words words = {"--quantize_delay=2", "--reproducible", "--reproducible_shards=4"};
  Words one = words;
  one.push_back("--batch_size=16");
  Train(folder_ / "one", 5, one);
  Train(folder_ / "two", 5, words, 2);
  EXPECT_EQ(DigestOf(folder_ / "two"), DigestOf(folder_ / "one"));
}

TEST_F(QuantizeTest, CountsEachStepOnceWithMicroBatches) {
  Train(train_dir_, 3, {"--quantize_delay=2", "--accumulation_steps=2"});
  EXPECT_EQ(Variables(train_dir_).at("fake_quantization_step")[0], 3);
}

TEST_F(QuantizeTest, FloatRunsAreFineTunedButNotResumed) {
  Train(train_dir_, 2);
  EXPECT_TRUE(FailsWith(Carole(Arguments(train_dir_, 4, {"--quantize_delay=0"})), 65,
                        {"weights_quant/min is missing: the run was not quantized",
                         "--checkpoint_path=" + train_dir_}));
  EXPECT_TRUE(FailsWith(Carole(Eval(train_dir_, {"--quantize"})), 65,
                        {"weights_quant/min", "it has no ranges of quantization"}));
  const ProcessResult tuned =
      Train(folder_ / "tuned", 2, {"--quantize_delay=0", "--checkpoint_path=" + train_dir_});
  EXPECT_THAT(tuned.err, HasSubstr("137 variables restored"));
  const std::string quant = "MobilenetV1/MobilenetV1/Conv2d_0/act_quant";
  EXPECT_EQ(Variables(folder_ / "tuned").at(quant + "/" + quant + "/min/local_step")[0], 2);
}

TEST_F(QuantizeTest, AQuantizedRunGoesOnWithoutQuantization) {
  Train(train_dir_, 1, {"--quantize_delay=1"});
  EXPECT_THAT(Train(train_dir_, 2, {"--quantize_delay=0"}).err,
              HasSubstr("--quantize_delay: the run used 1 so far and now continues with 0"));
  EXPECT_THAT(Train(train_dir_, 3).err, HasSubstr("224 variables of quantization are dropped"));
  EXPECT_TRUE(FailsWith(Carole(Arguments(folder_ / "other", 3,
                                         {"--quantize_delay=0", "--checkpoint_path=" + train_dir_,
                                          "--precision=bf16"})),
                        64, {"--precision", "want fp32 or tf32 for a quantized net"}));
  EXPECT_TRUE(FailsWith(
      Carole(Arguments(folder_ / "other", 3, {"--quantize_delay=0", "--noaverage_statistics"})), 64,
      {"--noaverage_statistics", "--quantize_delay"}));
  EXPECT_TRUE(FailsWith(
      Carole(Arguments(folder_ / "other", 3, {"--quantize_delay=0", "--cross_check_every=1"}), 2),
      64, {"--cross_check_every", "--quantize_delay"}));
}

TEST_F(QuantizeTest, RefusesNetsWhoseEvaluationNeedsOtherRanges) {
  const Words words = {"--quantize_delay=0", "--model_name=nasnet_cifar", "--train_image_size=32"};
  EXPECT_TRUE(FailsWith(Carole(Arguments(train_dir_, 1, words)), 64,
                        {"cannot quantize nasnet_cifar", "/min, which evaluation needs"}));
}

TEST_F(QuantizeTest, EvaluatesWithTheRanges) {
  Train(train_dir_, 4, {"--quantize_delay=0", "--eval_every=2", "--moving_average_decay=0.9"});
  const std::string before = DigestOf(train_dir_);
  const ProcessResult quantized = RunToEnd(Eval(train_dir_, {"--quantize", "--json"}));
  const ProcessResult in_float = RunToEnd(Eval(train_dir_, {"--json"}));
  EXPECT_NE(quantized.out, in_float.out);
  RunToEnd(Eval(train_dir_, {"--quantize", "--moving_average_decay=0.9"}));
  EXPECT_EQ(DigestOf(train_dir_), before);
  WriteDigitImages(folder_ / "images", 1);
  RunToEnd({"predict", "--checkpoint_path=" + train_dir_, folder_ / "images/0.png"});
}

// Ranges have no moving averages.
TEST_F(QuantizeTest, ExportsAveragesWithTheRanges) {
  Train(train_dir_, 2, {"--quantize_delay=0", "--moving_average_decay=0.9"});
  const std::string quantized = folder_ / "quantized.onnx", in_float = folder_ / "float.onnx";
  const Words words = {"export", "--checkpoint_path=" + train_dir_, "--moving_averages"};
  Words quantize = words;
  quantize.insert(quantize.end(), {"--quantize", "--output=" + quantized});
  EXPECT_THAT(RunToEnd(quantize).out, HasSubstr("quantized to 8 bits"));
  Words plain = words;
  plain.push_back("--output=" + in_float);
  EXPECT_THAT(RunToEnd(plain).err, HasSubstr("which only --quantize exports"));
  EXPECT_LT(3 * std::filesystem::file_size(quantized), std::filesystem::file_size(in_float));
}

TEST_F(QuantizeTest, KeepsRangesInTensorFlowsFormat) {
  Train(train_dir_, 3, {"--quantize_delay=2"});
  const std::string prefix = folder_ / "tf/model.ckpt-3", back = folder_ / "back.h5";
  const ProcessResult there = RunToEnd({"checkpoint", "convert", train_dir_, prefix});
  EXPECT_THAT(there.out, ::testing::Not(HasSubstr("left out")));
  RunToEnd({"checkpoint", "convert", prefix, back});
  const auto want = Variables(train_dir_);
  const io::Checkpoint converted = io::ReadCheckpoint(back);
  ASSERT_EQ(converted.variables.size(), want.size());
  for (const auto& v : converted.variables) EXPECT_EQ(v.data, want.at(v.name)) << v.name;
}

}  // namespace
}  // namespace carole::testing
