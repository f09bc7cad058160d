// carole bench: the JSON keys that other programs read, and plausible values.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/cli.h"

namespace carole::testing {
namespace {

// Parses every line of standard output as JSON and expects that it has these keys.
std::vector<nlohmann::json> RowsOf(const ProcessResult& result, const Words& keys) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<nlohmann::json> rows;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    rows.push_back(nlohmann::json::parse(line));
    for (const std::string& key : keys)
      EXPECT_TRUE(rows.back().contains(key)) << key << " in " << line;
  }
  return rows;
}

TEST(BenchTest, TrainAloneAndOnTwoRanks) {
  for (int ranks : {1, 2}) {
    const ProcessResult result =
        Carole({"bench", "train", "--model_name=lenet", "--batch_size=8", "--steps=4",
                "--warmup_steps=1", "--threads=1", "--json", "--profile"},
               ranks);
    const auto rows =
        RowsOf(result, {"net", "batch_size", "image_size", "precision", "ranks", "threads",
                        "images_per_second", "step_ms_median", "step_ms_p90", "input_ms",
                        "forward_ms", "backward_ms", "exposed_communication_ms", "optimizer_ms",
                        "agreement_ms", "peak_rss_bytes"});
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_EQ(rows[0]["ranks"], ranks);
    EXPECT_EQ(rows[0]["image_size"], 28);
    EXPECT_GT(rows[0]["images_per_second"], 1);
    EXPECT_LE(rows[0]["step_ms_median"], rows[0]["step_ms_p90"]);
    EXPECT_EQ(rows[0]["agreement_ms"] > 0, ranks > 1) << rows[0]["agreement_ms"];
    EXPECT_GT(rows[0]["peak_rss_bytes"], 3'274'634 * 8);  // weights and gradients at least
    EXPECT_NE(result.err.find("conv2d_backward_filter"), std::string::npos) << result.err;
  }
}

// OpenMP binds the first thread to one core. The program must not take that for the rank's cores.
TEST(BenchTest, OpenMpBindingTakesNoCores) {
  const Words command = CaroleWords({"bench", "train", "--model_name=lenet", "--batch_size=2",
                                     "--steps=1", "--warmup_steps=0", "--json"});
  const Words words =  // without these variables the program restarts itself
      WithEnvironment({"-u", "OMP_WAIT_POLICY", "-u", "GOMP_SPINCOUNT"}, command);
  const Words bound = WithEnvironment({"OMP_PROC_BIND=true", "OMP_PLACES=threads"}, words);
  const auto free_rows = RowsOf(RunProcess(words), {"threads"});
  const auto bound_rows = RowsOf(RunProcess(bound), {"threads"});
  ASSERT_EQ(free_rows.size(), 1U);
  ASSERT_EQ(bound_rows.size(), 1U);
  EXPECT_EQ(bound_rows[0]["threads"], free_rows[0]["threads"]);
}

// Kernels wait for as many threads as they were told, so the number must be the real one.
TEST(BenchTest, SmallOpenMpTeamsDoNotHang) {
  for (const char* setting :
       {"OMP_THREAD_LIMIT=1", "OMP_DYNAMIC=true", "OMP_MAX_ACTIVE_LEVELS=0"}) {
    const Words command = CaroleWords({"bench", "train", "--model_name=lenet", "--batch_size=2",
                                       "--steps=1", "--warmup_steps=0", "--threads=2", "--json"});
    const auto rows = RowsOf(RunProcess(WithEnvironment({setting}, command)), {"threads"});
    ASSERT_EQ(rows.size(), 1U) << setting;
    EXPECT_EQ(rows[0]["threads"], setting == std::string("OMP_THREAD_LIMIT=1") ? 1 : 2);
  }
}

TEST(BenchTest, TrainOnBytes) {
  const auto rows =
      RowsOf(Carole({"bench", "train", "--model_name=lenet", "--batch_size=8", "--steps=2",
                     "--warmup_steps=1", "--input_dtype=uint8", "--json"}),
             {"images_per_second"});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0]["input_dtype"], "uint8");
}

TEST(BenchTest, AllreduceOnTwoRanks) {
  const auto rows =
      RowsOf(Carole({"bench", "allreduce", "--sizes=4096,65536", "--steps=3", "--json"}, 2),
             {"algorithm", "ranks", "bytes", "time_us_median", "bus_gb_per_s", "copy_gb_per_s"});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1]["bytes"], 65536);
  EXPECT_GT(rows[1]["bus_gb_per_s"], 0);
  EXPECT_GT(rows[1]["copy_gb_per_s"], 0);
}

TEST(BenchTest, GradientsAreSentAsFp32OnOneHostUnlessAskedOtherwise) {
  const std::string choice = "--wire_dtype=auto: fp32: all ranks are on one host";
  const auto log = [](Words words) {
    words.push_back("--wire_dtype=auto");
    const ProcessResult result = Carole(words, 2);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  EXPECT_THAT(log({"bench", "allreduce", "--sizes=4096", "--steps=1"}),
              ::testing::HasSubstr(choice));
  const Words train{"bench", "train", "--model_name=lenet", "--batch_size=8", "--steps=1"};
  EXPECT_THAT(log(train), ::testing::HasSubstr(choice));
  Words reproducible = train;
  reproducible.push_back("--reproducible");
  EXPECT_THAT(log(reproducible), ::testing::Not(::testing::HasSubstr("wire_dtype")));
}

TEST(BenchTest, UnknownAlgorithmIsWrongUsage) {
  EXPECT_TRUE(FailsWith(Carole({"bench", "allreduce", "--all_reduce=rings"}), 64,
                        {"--all_reduce", "rings", "ring"}));
}

TEST(BenchTest, SizesArePositive) {
  EXPECT_TRUE(FailsWith(Carole({"bench", "allreduce", "--sizes=8,-4"}), 64, {"--sizes", "-4"}));
}

TEST(BenchTest, SizesAboveTheMemoryAreRefused) {
  for (int ranks : {1, 2}) {
    const ProcessResult result =
        Carole({"bench", "allreduce", "--sizes=8,999999999999999", "--steps=1"}, ranks);
    EXPECT_TRUE(FailsWith(result, 78, {"--sizes: too large", "got 999999999999999, want at most"}));
    EXPECT_THAT(result.err, ::testing::Not(::testing::HasSubstr("--batch_size")));
  }
}

TEST(BenchTest, RanksWithDifferentSizesAreRefused) {
  const Words words =
      WithSecondRank({"bench", "allreduce", "--sizes=1024"}, R"("$@" --sizes=2048)");
  EXPECT_TRUE(FailsWith(RunProcess(words), 78,
                        {"ranks differ", "--sizes: rank 1 (", "has 2048", "has 1024"}));
}

class BenchInputTest : public CliTest {};

TEST_F(BenchInputTest, CountsEachStage) {
  const auto rows =
      RowsOf(Carole({"bench", "input", "--dataset_name=mnist", "--dataset_dir=" + data_dir_,
                     "--steps=5", "--threads=2", "--json"}),
             {"threads", "images_per_second", "read_ms", "parse_ms", "decode_ms", "augment_ms",
              "libjpeg_full_decode_images_per_second"});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0]["threads"], 2);
  EXPECT_EQ(rows[0]["input_dtype"], "fp32");  // resnet_v1_50 resizes
  EXPECT_GT(rows[0]["images_per_second"], 1);
  EXPECT_EQ(rows[0]["libjpeg_full_decode_images_per_second"], 0);  // digits are PNGs
}

TEST_F(BenchInputTest, TrainOnADataSet) {
  const auto rows =
      RowsOf(Carole({"bench", "train", "--model_name=lenet", "--dataset_name=mnist", "--threads=1",
                     "--dataset_dir=" + data_dir_, "--batch_size=8", "--steps=4", "--json"}),
             {"net", "batch_size", "images_per_second"});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0]["image_size"], 28);
  EXPECT_GT(rows[0]["images_per_second"], 1);
  // The cores that compute threads leave free decode.
  const auto all = RowsOf(Carole({"bench", "input", "--dataset_name=mnist", "--steps=1",
                                  "--rounds=1", "--dataset_dir=" + data_dir_, "--json"}),
                          {"threads"});
  ASSERT_EQ(all.size(), 1U);
  const int cores = all[0]["threads"];
  EXPECT_EQ(rows[0]["decode_threads"], std::max(1, cores - 1));
  const Words elsewhere = {"bench", "train", "--dataset_name=mnist", "--dataset_dir=nowhere"};
  EXPECT_TRUE(FailsWith(Carole(elsewhere), 65, {"nowhere"}));
}

}  // namespace
}  // namespace carole::testing
