#include "src/train/state/warm_start.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "io/checkpoint/checkpoint.h"
#include "src/core/error.h"
#include "src/graph/plan/compiler.h"
#include "src/train/loop/time_limit.h"
#include "tests/support/text_of.h"
#include "tests/train/training.h"

namespace carole::train {
namespace {

using carole::testing::SmallNet;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A source of weights in memory.
class FakeWeights : public io::WeightsSource {
 public:
  void Set(const std::string& name, const Shape& shape, float value) {
    names_.push_back(name);
    tensors_[name] = {shape, value};
  }
  const std::string& path() const override { return path_; }
  const std::vector<std::string>& names() const override { return names_; }
  bool Has(const std::string& name) const override { return tensors_.contains(name); }
  Shape shape(const std::string& name) const override { return tensors_.at(name).first; }
  void Read(const std::string& name, std::span<float> out) const override {
    std::fill(out.begin(), out.end(), tensors_.at(name).second);
  }
  const std::string& misfit_hint() const override { return hint; }
  const io::Checkpoint* carole_checkpoint() const override {
    return checkpoint.attributes.empty() ? nullptr : &checkpoint;
  }

  std::string hint;
  io::Checkpoint checkpoint;

 private:
  const std::string path_ = "weights.h5";
  std::vector<std::string> names_;
  std::map<std::string, std::pair<Shape, float>> tensors_;
};

class WarmStartTest : public ::testing::Test {
 protected:
  WarmStartTest()
      : backend_(MakeReferenceBackend(1)), net_(4), executable_(Compile(*net_.graph, *backend_)) {
    store_ = executable_.MakeStore();
    store_->Initialize(1);
  }

  float First(const std::string& name) const {
    const int v = store_->Find(name);
    std::vector<float> values(static_cast<size_t>(store_->variables()[v].tf_shape.size()));
    store_->Read(v, values);
    return values.front();
  }

  const std::unique_ptr<Backend> backend_;
  SmallNet net_;
  Executable executable_;
  std::unique_ptr<VariableStore> store_;
};

TEST_F(WarmStartTest, ReportsWhatHappenedToEachVariable) {
  FakeWeights file;
  file.Set("net/conv/weights", {3, 3, 1, 12}, 0.5F);
  const WarmStartReport report = WarmStart(file, {.ignore_missing = true}, *store_);
  EXPECT_THAT(report.restored, ElementsAre("net/conv/weights"));
  EXPECT_THAT(report.missing, ElementsAre("net/logits/weights", "net/logits/biases"));
  EXPECT_EQ(First("net/conv/weights"), 0.5F);
  EXPECT_NE(First("net/logits/weights"), 0.5F);
}

TEST_F(WarmStartTest, ScopesArePrefixesOfNames) {
  FakeWeights file;
  file.Set("net/conv/weights", {3, 3, 1, 12}, 0.5F);
  const WarmStartReport report = WarmStart(file, {.exclude_scopes = {"net/log"}}, *store_);
  EXPECT_THAT(report.excluded, ElementsAre("net/logits/weights", "net/logits/biases"));
  const WarmStartReport none =
      WarmStart(file, {.exclude_scopes = {"logits"}, .ignore_missing = true}, *store_);
  EXPECT_THAT(none.excluded, ElementsAre());
  EXPECT_THAT(none.unused_scopes, ElementsAre("logits (did you mean net/logits?)"));
  const WarmStartReport close = WarmStart(
      file, {.exclude_scopes = {"Net/Log", "net/logits/*"}, .ignore_missing = true}, *store_);
  EXPECT_THAT(close.unused_scopes, ElementsAre("Net/Log (did you mean net/log?)",
                                               "net/logits/* (did you mean net/logits/?)"));
  EXPECT_THAT(
      [&] { WarmStart(file, {.exclude_scopes = {"net"}}, *store_); },
      ThrowsMessage<UsageError>(HasSubstr("excludes all variables of the net, such as net/")));
}

// An error names the scope that had no effect instead of recommending the option that was given.
TEST_F(WarmStartTest, ErrorNamesScopesThatMatchNothing) {
  FakeWeights file;
  file.Set("net/conv/weights", {3, 3, 1, 12}, 0.5F);
  EXPECT_THAT(
      [&] {
        WarmStart(file, {.exclude_scopes = {"logits", "net/fc"}}, *store_);
      },
      ThrowsMessage<DataError>(
          HasSubstr("missing net/logits/weights, net/logits/biases; "
                    "\x1f$(checkpoint_exclude_scopes): no variable has the prefix logits (did you "
                    "mean net/logits?), net/fc, or allow missing ones with")));
}

TEST_F(WarmStartTest, LeavesOutAClassifierOfOtherClasses) {
  const WarmStartOptions options = {.classifiers = {{"net/logits/weights", "net/logits/biases"}}};
  const float before = First("net/logits/weights");
  // Keras has a matrix for what is a convolution in other nets, and the other way round.
  for (const Shape& weights : {Shape{192, 7}, Shape{1, 1, 192, 7}}) {
    FakeWeights file;
    file.Set("net/conv/weights", {3, 3, 1, 12}, 0.5F);
    file.Set("net/logits/weights", weights, 0.5F);
    file.Set("net/logits/biases", {7}, 0.5F);
    const WarmStartReport report = WarmStart(file, options, *store_);
    EXPECT_THAT(report.restored, ElementsAre("net/conv/weights"));
    EXPECT_THAT(report.other_classes, ElementsAre("net/logits/weights", "net/logits/biases"));
    EXPECT_EQ(report.file_classes, 7);
    EXPECT_EQ(report.net_classes, 10);
    EXPECT_EQ(First("net/logits/weights"), before);
    EXPECT_THAT([&] { ReadVariables(file, WeightsKind::kTrained, *store_); },
                ThrowsMessage<DataError>(HasSubstr("net/logits/biases (file [7], net [10])")));
  }
}

// Only another number of classes is accepted.
TEST_F(WarmStartTest, RefusesAClassifierThatDiffersInAnotherWay) {
  const WarmStartOptions options = {.classifiers = {{"net/logits/weights", "net/logits/biases"}}};
  const auto error = [&](const Shape& conv, const Shape& weights, const Shape& biases) {
    FakeWeights file;
    file.Set("net/conv/weights", conv, 0.5F);
    file.Set("net/logits/weights", weights, 0.5F);
    if (biases.rank() > 0) file.Set("net/logits/biases", biases, 0.5F);
    return TextOf<DataError>([&] { WarmStart(file, options, *store_); });
  };
  const Shape conv = {3, 3, 1, 12};
  EXPECT_THAT(error(conv, {96, 7}, {7}), HasSubstr("weights (file [96,7], net [192,10]), net"));
  EXPECT_THAT(error(conv, {192, 7}, {8}), HasSubstr("weights (file [192,7], net [192,10]), net"));
  EXPECT_THAT(error(conv, {192, 7}, {}), HasSubstr("missing net/logits/biases; wrong shape net"));
  EXPECT_THAT(error({3, 3, 3, 12}, {192, 7}, {7}),
              HasSubstr("fit the net: wrong shape net/conv/weights (file [3,3,3,12], net "
                        "[3,3,1,12]); exclude them"));
}

TEST_F(WarmStartTest, RejectsNanWeights) {
  FakeWeights file;
  file.Set("net/conv/weights", {3, 3, 1, 12}, NAN);
  EXPECT_THAT([&] { WarmStart(file, {.ignore_missing = true}, *store_); },
              ThrowsMessage<DataError>(
                  HasSubstr("weights.h5: net/conv/weights: got infinite or NaN values")));
}

TEST_F(WarmStartTest, RejectsVariablesThatDoNotFit) {
  FakeWeights file;
  file.Set("net/logits/weights", {192, 7}, 0.5F);
  EXPECT_THAT([&] { WarmStart(file, {}, *store_); },
              ThrowsMessage<DataError>(
                  ::testing::AllOf(HasSubstr("missing net/conv/weights, net/logits/biases;"),
                                   HasSubstr("net/logits/weights (file [192,7], net [192,10])"),
                                   HasSubstr("\x1f$(checkpoint_exclude_scopes)"))));
  EXPECT_THAT([&] { WarmStart(file, {.ignore_missing = true}, *store_); },
              ThrowsMessage<DataError>(HasSubstr("the net: wrong shape net/logits/weights")));
  FakeWeights other;
  other.Set("vgg_16/fc8/biases", {10}, 0);
  EXPECT_THAT([&] { WarmStart(other, {.ignore_missing = true}, *store_); },
              ThrowsMessage<DataError>(HasSubstr("its first variable is vgg_16/fc8/biases")));
  EXPECT_THAT([&] { ReadVariables(other, WeightsKind::kTrained, *store_); },
              ThrowsMessage<DataError>(HasSubstr("the file begins with vgg_16/fc8/biases; check")));
  EXPECT_THAT([&] { ReadVariables(other, WeightsKind::kMovingAverages, *store_); },
              ThrowsMessage<DataError>(HasSubstr("has no moving averages")));
  other.checkpoint.attributes["net"] = "vgg_16";
  EXPECT_THAT([&] { WarmStart(other, {}, *store_); },
              ThrowsMessage<DataError>(HasSubstr("holds vgg_16: use \x1f$(model_name)=vgg_16 or")));
  EXPECT_THAT([&] { ReadVariables(other, WeightsKind::kMovingAverages, *store_); },
              ThrowsMessage<DataError>(HasSubstr("has no moving averages")));
  // What is special about the file is a better hint.
  other.hint = "save it in another format";
  EXPECT_THAT([&] { ReadVariables(other, WeightsKind::kTrained, *store_); },
              ThrowsMessage<DataError>(HasSubstr("begins with vgg_16/fc8/biases; save it in")));
  EXPECT_THAT([&] { WarmStart(other, {.ignore_missing = true}, *store_); },
              ThrowsMessage<DataError>(HasSubstr("variable is vgg_16/fc8/biases; save it in")));
}

TEST(TimeLimitTest, EndsAfterMaxTimeOrBeforeTheJobEnds) {
  using std::chrono::seconds;
  const Moment start{.wall_clock = std::chrono::system_clock::time_point(seconds(1'000'000))};
  auto at = [&](int s) { return Moment{start.steady + seconds(s), start.wall_clock + seconds(s)}; };
  const TimeLimit none({}, start);
  EXPECT_EQ(none.Reason(at(1 << 30)), "");
  const TimeLimit own({.max_seconds = 90}, start);
  EXPECT_EQ(own.Reason(at(89)), "");
  EXPECT_NEAR(own.SecondsLeft(at(80)), 10, 1e-6);
  EXPECT_TRUE(std::isinf(none.SecondsLeft(at(0))));
  EXPECT_EQ(own.Reason(at(90)), "\x1f$(max_time): 90 s are over");
  EXPECT_EQ(own.Reason({start.steady, at(90).wall_clock}), "");  // somebody has set the clock
  const TimeLimit job({.job_end = 1'000'300, .margin_seconds = 60}, start);
  EXPECT_EQ(job.Reason(at(239)), "");
  EXPECT_NEAR(job.SecondsLeft(at(140)), 100, 1e-3);
  EXPECT_EQ(job.Reason(at(241)), "the job ends in 59 s");
  const TimeLimit left_over({.job_end = 999'999, .margin_seconds = 60}, start);  // another job's
  EXPECT_EQ(left_over.Reason(at(0)), "");
}

}  // namespace
}  // namespace carole::train
