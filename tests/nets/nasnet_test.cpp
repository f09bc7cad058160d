// Properties of NASNet and PNASNet that the golden tests do not cover. Drop path was off in the
// recorded runs. Other image sizes are built here. Golden files of the larger nets are too large
// for tests/data/goldens, so the variables of these nets are checked by a hash.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "nets/nets.h"
#include "src/backend/ops/dropout.h"
#include "src/core/error.h"
#include "src/core/hash.h"

namespace carole::nets {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;

// The hash covers names, shapes, order and flags of all variables. The values are those of the
// golden files.
TEST(NasNet, HasTheVariablesOfTheGoldenFiles) {
  const std::pair<const char*, uint64_t> recorded[] = {
      {"nasnet_cifar", 0x1168492a8d6a4920ULL},
      {"nasnet_mobile", 0x21ab8277fa903622ULL},
      {"nasnet_large", 0x92c575f9d9b00195ULL},
      {"pnasnet_large", 0xe833dc96012aae05ULL},
  };
  for (const auto& [net, want] : recorded) {
    const Model model =
        BuildModel(FindNet(net), {.batch_size = 2, .num_classes = 10, .training = true});
    uint64_t got = kFnvOffset;
    for (const Variable& v : model.graph->variables()) {
      got = Fnv1a64(fmt::format("{} {} {:d}{:d}\n", v.name, v.tf_shape.ToString(), v.trainable,
                                v.l2_regularized),
                    got);
    }
    EXPECT_EQ(got, want) << net << ": the golden test of this net shows which variable differs";
  }
}

// The cells of a net that have drop path, in the order in which they are built.
struct DropPaths {
  std::vector<std::string> cells;
  std::vector<std::vector<DropoutAttributes>> paths;  // the drop paths of each cell
};

DropPaths DropPathsOf(const std::string& net, const ModelOptions& options) {
  const Model model = BuildModel(FindNet(net), options);
  DropPaths found;
  for (const Node& node : model.graph->nodes()) {
    const auto* dropout = node.attributes.get_if<DropoutAttributes>();
    if (dropout == nullptr || !dropout->per_row) continue;
    const std::string cell = node.name.substr(0, node.name.find('/'));
    if (found.cells.empty() || found.cells.back() != cell) {
      found.cells.push_back(cell);
      found.paths.emplace_back();
    }
    found.paths.back().push_back(*dropout);
  }
  return found;
}

struct Schedule {
  std::string net;
  double keep;  // final keep probability in the last cell
  int64_t steps;
  bool stem_cells;
  int cells;
  std::vector<int> reductions;  // numbers of the cells that come after a reduction cell
};

void PrintTo(const Schedule& schedule, std::ostream* out) { *out << schedule.net; }

class DropPath : public testing::TestWithParam<Schedule> {};

TEST_P(DropPath, KeepsLessInDeeperCellsAndLaterSteps) {
  const Schedule& want = GetParam();
  const DropPaths got = DropPathsOf(want.net, {.batch_size = 2, .training = true});
  std::vector<std::string> cells;
  if (want.stem_cells) cells = {"cell_stem_0", "cell_stem_1"};
  for (int i = 0, reduction = 0; i < want.cells; ++i) {
    if (testing::Value(i, testing::AnyOfArray(want.reductions))) {
      cells.push_back(fmt::format("reduction_cell_{}", reduction++));
    }
    cells.push_back(fmt::format("cell_{}", i));
  }
  ASSERT_THAT(got.cells, ElementsAreArray(cells));
  for (size_t i = 0; i < cells.size(); ++i) {
    const double depth = static_cast<double>(i + 1) / static_cast<double>(cells.size());
    const double final_keep = 1 - depth * (1 - want.keep);
    for (const DropoutAttributes& path : got.paths[i]) {
      EXPECT_DOUBLE_EQ(path.KeepAt(0), 1) << cells[i];
      EXPECT_DOUBLE_EQ(path.KeepAt(want.steps / 4), 1 - 0.25 * (1 - final_keep)) << cells[i];
      EXPECT_DOUBLE_EQ(path.KeepAt(want.steps), final_keep) << cells[i];
      EXPECT_DOUBLE_EQ(path.KeepAt(3 * want.steps), final_keep) << cells[i];
    }
  }
  EXPECT_DOUBLE_EQ(got.paths.back()[0].KeepAt(want.steps), want.keep);
}

INSTANTIATE_TEST_SUITE_P(Nets, DropPath,
                         testing::Values(Schedule{"nasnet_cifar", 0.6, 937'500, false, 18, {6, 12}},
                                         Schedule{"nasnet_large", 0.7, 250'000, true, 18, {6, 12}},
                                         Schedule{"pnasnet_large", 0.6, 250'000, true, 12, {}}),
                         [](const auto& info) { return info.param.net; });

TEST(NasNet, DropsEachOperationExceptIdentityIndependently) {
  const DropPaths got = DropPathsOf("nasnet_cifar", {.batch_size = 2, .training = true});
  std::set<int64_t> layers;
  for (size_t i = 0; i < got.cells.size(); ++i) {
    const bool reduction = got.cells[i].starts_with("reduction");
    EXPECT_EQ(got.paths[i].size(), reduction ? 9u : 8u) << got.cells[i];
    for (const DropoutAttributes& path : got.paths[i]) {
      EXPECT_TRUE(layers.insert(path.layer).second) << got.cells[i] << " layer " << path.layer;
    }
  }
  EXPECT_EQ(layers.size(), 18u * 8 + 2 * 9);
}

TEST(NasNet, HasNoDropPathForInferenceOrIfTheNetUsesNone) {
  const ModelOptions training{.batch_size = 2, .training = true};
  EXPECT_THAT(DropPathsOf("nasnet_mobile", training).cells, testing::IsEmpty());
  EXPECT_THAT(DropPathsOf("pnasnet_mobile", training).cells, testing::IsEmpty());
  EXPECT_THAT(DropPathsOf("nasnet_cifar", {.batch_size = 2}).cells, testing::IsEmpty());
  EXPECT_THAT(
      DropPathsOf("nasnet_cifar", {.batch_size = 2, .training = true, .dropout = false}).cells,
      testing::IsEmpty());
}

TEST(NasNet, AuxiliaryHeadExistsOnlyInTrainingAtAllSizes) {
  for (const char* name : {"nasnet_cifar", "nasnet_mobile", "pnasnet_mobile"}) {
    const NetEntry& net = FindNet(name);
    for (int64_t size : {net.min_image_size, net.min_image_size + 1, net.image_size + 37}) {
      ModelOptions options{.batch_size = 1, .image_size = size, .num_classes = 5};
      EXPECT_EQ(BuildModel(net, options).aux_logits, kNone) << name << " at " << size;
      options.training = true;
      const Model model = BuildModel(net, options);
      ASSERT_NE(model.aux_logits, kNone) << name << " at " << size;
      EXPECT_EQ(model.graph->shape(model.aux_logits), (Shape{1, 5}));
    }
  }
}

// With one pixel less, the map is smaller than the pooling window of the auxiliary head.
TEST(NasNet, AuxiliaryHeadDeterminesTheSmallestSize) {
  for (const char* name : {"nasnet_cifar", "nasnet_mobile", "pnasnet_mobile"}) {
    NetEntry net = FindNet(name);
    const int64_t size = --net.min_image_size;
    try {
      BuildModel(net, {.batch_size = 1, .image_size = size, .training = true});
      FAIL() << name << " takes " << size << " pixels";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("aux_logits/pool")) << name;
    }
  }
}

}  // namespace
}  // namespace carole::nets
