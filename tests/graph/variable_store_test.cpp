#include "src/graph/variable_store.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "src/graph/plan/compiler.h"
#include "src/graph/plan/executable.h"
#include "src/tensor/buffer.h"
#include "tests/support/reference.h"
#include "tests/support/sample_graphs.h"

namespace carole::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

VariableSlice MakeVariable(const std::string& name, const Shape& tf_shape,
                           Initializer initializer = {}, bool trainable = true) {
  Shape shape = tf_shape;
  if (tf_shape.rank() == 4) shape = {tf_shape[3], tf_shape[2], tf_shape[0], tf_shape[1]};
  if (tf_shape.rank() == 2) shape = {tf_shape[1], tf_shape[0]};
  const Layout layout = shape.rank() >= 2 ? Layout::Filter() : Layout::RowMajor();
  return {.name = name,
          .tf_shape = tf_shape,
          .shape = shape,
          .layout = layout,
          .plain_layout = layout,
          .initializer = initializer,
          .trainable = trainable};
}

std::vector<float> Read(const VariableStore& store, int variable) {
  std::vector<float> values(static_cast<size_t>(store.variables()[variable].shape.size()));
  store.Read(variable, values);
  return values;
}

std::vector<float> Counted(int64_t size) {
  std::vector<float> values(static_cast<size_t>(size));
  std::iota(values.begin(), values.end(), 1.f);
  return values;
}

TEST(VariableStore, TrainableVariablesAreInReadyOrder) {
  const VariableStore store(Reference(), DType::kF32,
                            {MakeVariable("a", {3}), MakeVariable("mean", {5}, {}, false),
                             MakeVariable("b", {17}), MakeVariable("c", {2, 2})},
                            {3, 0});
  const auto& p = store.variables();
  EXPECT_EQ(p[3].offset, 0);   // first to be ready
  EXPECT_EQ(p[0].offset, 16);  // a cache line of 16 floats later
  EXPECT_EQ(p[2].offset, 32);  // has no gradient, so it comes last
  EXPECT_EQ(p[2].count, 32);
  EXPECT_EQ(p[1].offset, 0);  // in the statistics
  EXPECT_EQ(store.trainable_count(), 64);
  EXPECT_EQ(store.weights<float>().size(), 64u);
  EXPECT_EQ(store.gradients<float>().size(), 64u);
  EXPECT_EQ(store.statistics<float>().size(), 16u);
  EXPECT_EQ(store.Find("b"), 2);
  EXPECT_EQ(store.Find("d"), -1);
}

TEST(VariableStore, ReadAndWriteRoundTripWithinTheirRange) {
  VariableStore store(Reference(), DType::kF32,
                      {MakeVariable("a", {3, 3, 2, 5}), MakeVariable("mean", {5}, {}, false)}, {0});
  store.Write(0, Counted(90));
  store.Write(1, Counted(5));
  EXPECT_EQ(Read(store, 0), Counted(90));
  EXPECT_EQ(Read(store, 1), Counted(5));
  for (size_t i = 90; i < 96; ++i) EXPECT_EQ(store.weights<float>()[i], 0) << "padding";
  for (float g : store.gradients<float>()) EXPECT_EQ(g, 0);
}

TEST(VariableStore, ErrorsNameTheVariable) {
  VariableStore store(Reference(), DType::kF32, {MakeVariable("conv/weights", {2, 3})}, {0});
  EXPECT_THAT([&] { store.Write(0, Counted(5)); },
              ThrowsMessage<DataError>(::testing::StrEq("[variables] conv/weights: wrong number of "
                                                        "values: got 5, want 6 for shape [2,3]")));
  EXPECT_THAT([&] { (void)store.weights<double>(); },
              ThrowsMessage<InternalError>(HasSubstr("arena of fp32 read as another type")));
  EXPECT_THAT(
      [] {
        VariableStore(Reference(), DType::kF32, {MakeVariable("twice", {3})}, {0, 0});
      },
      ThrowsMessage<InternalError>(HasSubstr("variable twice is placed twice")));
  VariableStore frozen(Reference(), DType::kF32, {MakeVariable("mean", {3}, {}, false)}, {});
  EXPECT_THAT([&] { (void)frozen.Gradient(0); },
              ThrowsMessage<InternalError>(HasSubstr("mean has no gradient")));
}

TEST(VariableStore, GradientsUseTheCallersMemory) {
  Buffer memory(1024);
  size_t asked = 0;
  const VariableStore store(Reference(), DType::kF64,
                            {MakeVariable("a", {3}), MakeVariable("b", {9})}, {1, 0},
                            [&](size_t bytes) {
                              asked = bytes;
                              return memory.data();
                            });
  EXPECT_EQ(asked, 128u + 64u);
  EXPECT_EQ(store.gradients_base(), memory.data());
  EXPECT_EQ(store.Gradient(0).data, memory.data() + 128);
}

// Filters of 3 -> 20 channels: oneDNN pads both to its blocks.
TEST(VariableStore, BlockedLayoutsRoundTripAndTheirPaddingStaysZero) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "skipped: built without oneDNN";
  Graph g;
  Sketch s(g);
  ValueId y = s.Conv(g.AddInput("images", {2, 3, 9, 9}, DType::kF32), "a", 20, 3, {}, true);
  y = s.Conv(s.Relu(y), "b", 20, 3, {.groups = 2});
  s.Head(s.Conv(y, "c", 7, 1));
  Differentiate(g);
  const auto backend = MakeOneDnnBackend(1);
  Executable executable(Compile(g, *backend));
  const auto store = executable.MakeStore();
  int opaque = 0;
  double sum = 0;
  for (int v = 0; v < static_cast<int>(store->variables().size()); ++v) {
    const VariableSlice& p = store->variables()[v];
    EXPECT_EQ(p.offset * sizeof(float) % Buffer::kAlignment, 0u) << p.name;
    opaque += p.layout.opaque() != nullptr;
    store->Write(v, Counted(p.shape.size()));
    EXPECT_EQ(Read(*store, v), Counted(p.shape.size())) << p.name;
    sum += static_cast<double>(p.shape.size()) * static_cast<double>(p.shape.size() + 1) / 2;
  }
  EXPECT_GE(opaque, 2) << "no layout is blocked, nothing is checked";
  const auto total = [](std::span<const float> all) {
    return std::accumulate(all.begin(), all.end(), 0.0,
                           [](double t, float v) { return t + std::abs(v); });
  };
  // The values are positive, so numbers in the padding would increase the sum.
  EXPECT_EQ(total(store->weights<float>()), sum);
  // The padding of gradients must stay 0 too, or the optimizer would change the weights' padding.
  executable.Bind(*store);
  store->Initialize(1);
  for (float& v : std::span(executable.Input("images").as<float>(), 486)) v = 0.5f;
  for (float& v : std::span(executable.Input("weights").as<float>(), 2)) v = 0.5f;
  executable.Run({});
  double gradients = 0;
  for (int v = 0; v < static_cast<int>(store->variables().size()); ++v) {
    std::vector<float> values(static_cast<size_t>(store->variables()[v].shape.size()));
    store->ReadFrom(store->gradients_base(), v, std::span<float>(values));
    gradients += total(values);
  }
  EXPECT_GT(gradients, 0);
  EXPECT_NEAR(total(store->gradients<float>()), gradients, 1e-9 * gradients);
}

// The initial values of one variable with this initializer.
std::vector<float> InitialValues(Initializer initializer, const Shape& tf_shape,
                                 uint64_t seed = 1) {
  VariableStore store(Reference(), DType::kF32, {MakeVariable("v", tf_shape, initializer)}, {0});
  store.Initialize(seed);
  return Read(store, 0);
}

struct Moments {
  explicit Moments(const std::vector<float>& values) {
    for (float v : values) {
      mean += v / static_cast<double>(values.size());
      largest = std::max(largest, static_cast<double>(std::abs(v)));
    }
    for (float v : values)
      deviation += (v - mean) * (v - mean) / static_cast<double>(values.size());
    deviation = std::sqrt(deviation);
  }
  double mean = 0, deviation = 0, largest = 0;
};

// The standard deviation of a normal distribution that is truncated at two standard deviations,
// relative to that of the full distribution.
constexpr double kTruncated = 0.879596566;

TEST(Initializer, DistributionsHaveTheirMoments) {
  const Shape filter{3, 3, 40, 50};  // fan in 360, fan out 450; 18,000 values
  struct Row {
    const char* name;
    Initializer initializer;
    double deviation, bound;
  };
  const double he = std::sqrt(1.3 * 2 / 360), he_out = std::sqrt(1.3 * 2 / 450),
               xavier = std::sqrt(6.0 / (360 + 450));
  const Row rows[] = {
      {"truncated normal", Initializer::TruncatedNormal(0.05), 0.05 * kTruncated, 0.1},
      {"he", Initializer::He(), he * kTruncated, 2 * he},
      {"he by fan out", Initializer::HeOut(), he_out * kTruncated, 2 * he_out},
      {"xavier", Initializer::XavierUniform(), xavier / std::sqrt(3.0), xavier}};
  for (const Row& row : rows) {
    const Moments m(InitialValues(row.initializer, filter));
    // Tolerances are four standard deviations of each estimate from 18,000 values.
    EXPECT_NEAR(m.mean, 0, 4 * row.deviation / std::sqrt(18'000)) << row.name;
    EXPECT_NEAR(m.deviation / row.deviation, 1, 4 / std::sqrt(2 * 18'000.0)) << row.name;
    EXPECT_LE(m.largest, row.bound * (1 + 1e-6)) << row.name;
    EXPECT_GT(m.largest, 0.97 * row.bound) << row.name;
  }
}

TEST(Initializer, ConstantAndMatrixFans) {
  EXPECT_EQ(InitialValues(Initializer::Constant(0.1), {3}), std::vector<float>(3, 0.1f));
  // A matrix (C,K) = (300,100): fan in 300, fan out 100.
  EXPECT_NEAR(Moments(InitialValues(Initializer::XavierUniform(), {300, 100})).largest,
              std::sqrt(6.0 / 400), 1e-4);
}

TEST(Initializer, ValuesDependOnSeedAndNameAlone) {
  const Initializer normal = Initializer::TruncatedNormal(1);
  VariableStore store(Reference(), DType::kF32,
                      {MakeVariable("v", {9}, normal), MakeVariable("w", {9}, normal)}, {1, 0});
  store.Initialize(1);
  EXPECT_EQ(Read(store, 0), InitialValues(normal, {9}, 1));
  EXPECT_NE(Read(store, 0), Read(store, 1));
  EXPECT_NE(Read(store, 0), InitialValues(normal, {9}, 2));
}

// A net starts from the same values in blocked and plain layouts, in fp32 and in double.
TEST(Initializer, ValuesAreTheSameInEveryBackend) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "skipped: built without oneDNN";
  auto values = [](const Backend& backend, DType compute) {
    Graph g(compute);
    Sketch s(g);
    BuildResidual(s);
    for (Variable& v : g.mutable_variables()) v.initializer = Initializer::He();
    const auto store = Executable(Compile(g, backend)).MakeStore();
    store->Initialize(7);
    std::vector<std::vector<float>> all;
    for (size_t v = 0; v < store->variables().size(); ++v)
      all.push_back(Read(*store, static_cast<int>(v)));
    return all;
  };
  const auto want = values(Reference(), DType::kF32);
  EXPECT_EQ(values(*MakeOneDnnBackend(2), DType::kF32), want);
  EXPECT_EQ(values(Reference(), DType::kF64), want);
}

}  // namespace
}  // namespace carole::testing
