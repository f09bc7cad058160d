// Optimizers and moving averages of the CUDA backend, compared with those of the host. An emulation
// runs the kernels on the CPU; WalledBackend makes the memory inaccessible to the host.
#include <gmock/gmock.h>

#include <algorithm>
#include <utility>

#include "src/backend/host_view.h"
#include "src/core/float16.h"
#include "src/optim/moving_averages.h"
#include "src/optim/optimizer.h"
#include "tests/golden/formula.h"
#include "tests/support/cuda_emulation/backend.h"
#include "tests/support/optimizer_options.h"
#include "tests/support/walled_backend.h"

namespace carole::optim {
namespace {

using carole::testing::With;

constexpr int64_t kCount = 9001;
const std::vector<Segment> kRegularized = {{16, 64}, {64, 5000}, {8000, 9000}};
const std::vector<Segment> kCopied = {{0, 50}, {64, 3000}, {3000, 4000}, {8500, 9001}};

std::vector<float> Formula(const std::string& name) {
  std::vector<float> values(kCount);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(golden::Uniform(Fnv1a64(name), i));
  return values;
}

// Weights, gradients and 16-bit copies of the weights in a backend's memory.
class Problem {
 public:
  explicit Problem(std::unique_ptr<Backend> backend)
      : backend_(std::move(backend)),
        weights_(backend_->Allocate(kBytes)),
        gradients_(backend_->Allocate(kBytes)),
        copies_(backend_->Allocate(kCount * sizeof(Bf16))) {
    Write(weights_, Formula("w"));
  }

  Optimizer Make(std::string_view name, const OptimizerOptions& options) const {
    return Optimizer(FindOptimizer(name), options,
                     {.weights = weights_.get(),
                      .gradients = gradients_.get(),
                      .count = kCount,
                      .regularized = kRegularized,
                      .copies = Copies()},
                     *backend_);
  }
  MovingAverages MakeAverages() const {
    return MovingAverages(0.9, DType::kF32, {std::span(weights_.get(), kBytes)}, *backend_);
  }

  // Does a step with gradients that depend on its number. Returns the sum of squares of the
  // regularized weights.
  double Step(Optimizer& optimizer, int step) const {
    Write(gradients_, Formula("g" + std::to_string(step)));
    optimizer.BeginStep(0.1);
    optimizer.Inspect(5000, kCount);
    optimizer.Inspect(0, 5000);
    optimizer.Update();
    EXPECT_TRUE(optimizer.Sums().is_finite);
    optimizer.EndStep();
    return optimizer.Sums().weight_squares;
  }

  std::vector<float> Read(std::byte* memory) const {
    const HostView view(*backend_, memory, kBytes);
    const auto values = view.as<float>();
    return {values.begin(), values.end()};
  }
  std::vector<float> weights() const { return Read(weights_.get()); }
  std::vector<Bf16> copies() const {
    const HostView view(*backend_, copies_.get(), kCount * sizeof(Bf16));
    const auto values = view.as<Bf16>();
    return {values.begin(), values.end()};
  }
  std::byte* weights_base() const { return weights_.get(); }
  void SetGradients(const std::vector<float>& values) const { Write(gradients_, values); }
  void SetWeights(const std::vector<float>& values) const { Write(weights_, values); }
  const Backend& backend() const { return *backend_; }

 private:
  static constexpr size_t kBytes = kCount * sizeof(float);

  std::vector<WeightCopy> Copies() const {
    std::vector<WeightCopy> copies;
    for (const Segment& s : kCopied) {
      if (backend_->has_own_memory())
        copies.push_back({s, DType::kBF16, copies_.get() + s.begin * sizeof(Bf16)});
    }
    return copies;
  }
  void Write(const DeviceMemory& to, const std::vector<float>& values) const {
    backend_->CopyFromHost(to.get(), reinterpret_cast<const std::byte*>(values.data()), kBytes);
  }

  std::unique_ptr<Backend> backend_;
  DeviceMemory weights_, gradients_, copies_;
};

std::unique_ptr<Backend> MakeDevice() {
  return std::make_unique<testing::WalledBackend>(testing::MakeEmulatedCudaBackend(1));
}

// Expects the same weights and slots after three steps. Host and device compile the same rules, so
// the results are equal bit by bit. The exceptions are clipping and trust ratios: the device adds
// the squares of a norm in another order.
void ExpectSame(std::string_view name, const OptimizerOptions& options) {
  const Problem host(MakeReferenceBackend(1)), device(MakeDevice());
  Optimizer a = host.Make(name, options), b = device.Make(name, options);
  for (int step = 0; step < 3; ++step) {
    const double loss = host.Step(a, step);
    EXPECT_NEAR(device.Step(b, step), loss, 1e-6 * loss);
    const double norm = GradientNorm(a.Sums(), 1);
    EXPECT_NEAR(GradientNorm(b.Sums(), 1), norm, 1e-12 * norm);
  }
  const UpdatePlan plan = FindOptimizer(name).plan(options);
  const bool exact = options.clip_gradient_norm == 0 && plan.max_gradient_norm == 0 &&
                     plan.trust_norm == TrustNorm::kNone;
  const float tolerance = exact ? 0 : 1e-6F;
  EXPECT_THAT(device.weights(),
              ::testing::Pointwise(::testing::FloatNear(tolerance), host.weights()));
  for (size_t s = 0; s < a.slots().size(); ++s) {
    const int slot = static_cast<int>(s);
    EXPECT_THAT(device.Read(b.slot(slot)),
                ::testing::Pointwise(::testing::FloatNear(tolerance), host.Read(a.slot(slot))))
        << a.slots()[s].name;
  }
}

TEST(DeviceOptimizerTest, CopiesOfWeightsEqualCastWeights) {
  const Problem device(MakeDevice());
  for (const OptimizerEntry& entry : kOptimizers) {
    Optimizer optimizer = device.Make(entry.name, {.weight_decay = 0.01});
    device.Step(optimizer, 0);
    const std::vector<float> weights = device.weights();
    const std::vector<Bf16> copies = device.copies();
    for (int64_t i = 0; i < kCount; ++i) {
      const bool is_copied =
          std::ranges::any_of(kCopied, [&](const Segment& s) { return s.begin <= i && i < s.end; });
      const Bf16 want = is_copied ? Bf16(weights[i]) : Bf16(0.0F);
      ASSERT_EQ(static_cast<float>(copies[i]), static_cast<float>(want)) << entry.name << " " << i;
    }
  }
}

TEST(DeviceOptimizerTest, EveryRuleGivesTheResultOfTheHost) {
  for (const OptimizerEntry& entry : kOptimizers) {
    SCOPED_TRACE(entry.name);
    ExpectSame(entry.name, {.weight_decay = 0.01});
    ExpectSame(entry.name, {.weight_decay = 0, .clip_gradient_norm = 2.5});
  }
  ExpectSame("momentum", With({}, "momentum", {{"nesterov", 1}}));
  ExpectSame(
      "ftrl",
      With({}, "ftrl", {{"ftrl_learning_rate_power", -0.4}, {"ftrl_l1", 0.01}, {"ftrl_l2", 0.1}}));
}

void ExpectNoChangeByStepsThatAreNotFinite(std::unique_ptr<Backend> backend) {
  const Problem device(std::move(backend));
  Optimizer optimizer = device.Make("momentum", {});
  const DeviceMemory loss = device.backend().Allocate(sizeof(float));
  const std::vector<float> before = device.weights();
  for (const bool spoil_loss : {false, true}) {
    std::vector<float> gradients = Formula("g");
    if (!spoil_loss) gradients[8999] = NAN;
    const float value = spoil_loss ? INFINITY : 1;
    device.SetGradients(gradients);
    device.backend().CopyFromHost(loss.get(), reinterpret_cast<const std::byte*>(&value),
                                  sizeof value);
    optimizer.BeginStep(0.1);
    optimizer.InspectLoss({.data = loss.get(), .shape = {}});
    optimizer.Inspect(0, kCount);
    optimizer.Update();
    EXPECT_FALSE(optimizer.Sums().is_finite);
    EXPECT_EQ(std::isfinite(GradientNorm(optimizer.Sums(), 1)), spoil_loss);
    EXPECT_EQ(device.weights(), before);
  }
  device.Step(optimizer, 0);
  EXPECT_NE(device.weights(), before);
}

TEST(DeviceOptimizerTest, ChangesNothingIfAGradientOrTheLossIsNotFinite) {
  ExpectNoChangeByStepsThatAreNotFinite(MakeReferenceBackend(1));
  ExpectNoChangeByStepsThatAreNotFinite(MakeDevice());
}

// A step starts before it is known whether the previous one was applied.
TEST(DeviceOptimizerTest, StepThatContinuesASkippedStepIsSkippedToo) {
  for (const bool on_host : {true, false}) {
    const Problem problem(on_host ? MakeReferenceBackend(1) : MakeDevice());
    Optimizer optimizer = problem.Make("momentum", {});
    const std::vector<float> before = problem.weights();
    std::vector<float> gradients = Formula("g");
    const auto step = [&](float first, bool continues) {
      gradients[0] = first;
      problem.SetGradients(gradients);
      optimizer.BeginStep(0.1, 1, continues);
      optimizer.Inspect(0, kCount);
      optimizer.Update();
      return optimizer.Sums().is_finite;
    };
    EXPECT_FALSE(step(NAN, false));
    EXPECT_FALSE(step(1, true));
    EXPECT_FALSE(step(1, true));
    EXPECT_EQ(problem.weights(), before);
    EXPECT_TRUE(step(1, false));
    EXPECT_TRUE(step(1, true));
    EXPECT_NE(problem.weights(), before);
  }
}

// A flag in a backend's memory.
class Flag {
 public:
  explicit Flag(const Backend& backend) : backend_(backend), memory_(backend.Allocate(1)) {}

  void Set(bool value) const {
    backend_.CopyFromHost(memory_.get(), reinterpret_cast<const std::byte*>(&value), 1);
  }
  const bool* get() const { return reinterpret_cast<const bool*>(memory_.get()); }

 private:
  const Backend& backend_;
  const DeviceMemory memory_;
};

TEST(DeviceMovingAveragesTest, EqualThoseOfTheHost) {
  const Problem host(MakeReferenceBackend(1)), device(MakeDevice());
  MovingAverages a = host.MakeAverages(), b = device.MakeAverages();
  for (const Problem* problem : {&host, &device}) {
    const Flag applied(problem->backend());
    MovingAverages& averages = problem == &host ? a : b;
    averages.Reset();
    for (int step = 1; step < 4; ++step) {
      problem->SetWeights(Formula("w" + std::to_string(step)));
      applied.Set(true);
      averages.Update(step, applied.get());
      applied.Set(false);
      averages.Update(step, applied.get());
    }
    averages.Swap();
  }
  EXPECT_EQ(device.weights(), host.weights());
  EXPECT_EQ(device.Read(b.shadow(0).data()), Formula("w3"));
}

}  // namespace
}  // namespace carole::optim
