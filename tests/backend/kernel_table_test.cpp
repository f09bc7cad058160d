// The tables of kernels of all backends, and the schemas that they refer to.
#include "src/backend/kernel_table.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/backend/cuda/runtime/cuda.h"
#include "src/backend/ops/batch_norm.h"
#include "src/backend/ops/copies.h"
#include "src/backend/ops/relu.h"
#include "src/backend/reference/reference.h"

namespace carole::testing {
namespace {

template <typename Context>
std::vector<KernelRowFor<Context>> AllRows(std::span<KernelRowsFor<Context> (*const)()> files) {
  std::vector<KernelRowFor<Context>> all;
  for (const auto rows : files) all.insert(all.end(), rows().begin(), rows().end());
  return all;
}

std::set<std::string_view> NamesOf(const auto& rows) {
  std::set<std::string_view> names;
  for (const auto& row : rows) names.insert(Name(row.kind));
  return names;
}

TEST(KernelTable, EachKindHasOneGeneralReferenceKernel) {
  std::map<std::string_view, int> general;
  for (const auto& row : AllRows(reference::KernelFiles())) {
    general[Name(row.kind)] += row.priority == 0;
  }
  EXPECT_GE(general.size(), 30u);
  for (const auto& [name, count] : general) EXPECT_EQ(count, 1) << name;
}

TEST(KernelTable, EachKindOfGpusHasAReferenceKernelToo) {
  const auto reference = NamesOf(AllRows(reference::KernelFiles()));
  for (const std::string_view name : NamesOf(AllRows(cuda::KernelFiles()))) {
    EXPECT_TRUE(reference.contains(name) || name == op::kCasts.name) << name;
  }
}

// Every name of a backward operation stands for something (OpSchema::backward).
TEST(OpSchema, NamesOfBackwardOperationsAreKnown) {
  int tested = 0;
  for (const auto& row : AllRows(reference::KernelFiles())) {
    const OpSchema* const backward = row.kind->backward;
    if (backward == nullptr) continue;
    ++tested;
    const auto known = [&](std::string_view name) {
      return row.kind->inputs.Find(name) >= 0 || row.kind->outputs.Find(name) >= 0;
    };
    for (size_t i = 0; i < backward->inputs.size(); ++i) {
      const std::string_view name = backward->inputs[i].name;
      EXPECT_TRUE(known(name) || known(name.substr(1))) << backward->name << ": " << name;
    }
    EXPECT_TRUE(known(backward->outputs[0].name.substr(1))) << backward->name;
  }
  EXPECT_GE(tested, 6);
}

// A row that is only there for this test, and the context that it gets.
std::unique_ptr<Kernel> MakeNothing(const OpSpec&, int) { return nullptr; }
bool IfPositive(const OpSpec&, int context) { return context > 0; }
using Rows = KernelRowsFor<int>;
constexpr KernelRowFor<int> kFirst[] = {
    {.kind = op::kRelu, .make = MakeNothing, .supports = IfPositive, .priority = 1}};
constexpr KernelRowFor<int> kSecond[] = {{.kind = op::kRelu, .make = MakeNothing}};
Rows First() { return kFirst; }
Rows Second() { return kSecond; }

TEST(KernelTable, TheHighestPriorityWinsInAnyOrder) {
  const OpSpec relu{.kind = op::kRelu, .inputs = {{}}, .outputs = {{}}};
  const auto all = [](const OpSpec&, int) { return true; };
  const auto none = [](const OpSpec&, int) { return false; };
  constexpr Rows (*kOrders[][2])() = {{First, Second}, {Second, First}};
  for (const auto& files : kOrders) {
    EXPECT_EQ(FindKernel<int>(files, relu, 1, all), &kFirst[0]);
    EXPECT_EQ(FindKernel<int>(files, relu, 0, all), &kSecond[0]);
    EXPECT_EQ(FindKernel<int>(files, relu, 0, none), nullptr);
    EXPECT_EQ(FindKernel<int>(files, {.kind = op::kCasts, .inputs = {{}}, .outputs = {{}}}, 1, all),
              nullptr);
    EXPECT_EQ(FindKernel<int>(files, {.kind = op::kRelu}, 1, all), nullptr);
  }
}

TEST(OpSchema, ListsAndNamedMembersAgree) {
  EXPECT_EQ(kPosition<BatchNormInputs>.moving_variance, kMembers<BatchNormInputs> - 1);
  const std::vector<int32_t> list = List(ReluBackwardInputs<int32_t>{.y = 7});
  EXPECT_EQ(list, (std::vector<int32_t>{-1, 7}));
  EXPECT_EQ(Named<ReluBackwardInputs>(list).y, 7);
  EXPECT_EQ(Named<BatchNormInputs>(list).moving_mean, -1) << "missing at the end";
  for (int i = 0; i < kMembers<BatchNormBackwardInputs>; ++i) {
    EXPECT_EQ(op::kBatchNormBackward.inputs.Find(op::kBatchNormBackward.inputs[i].name), i);
  }
}

}  // namespace
}  // namespace carole::testing
