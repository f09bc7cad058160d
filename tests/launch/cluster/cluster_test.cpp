#include "launch/cluster/cluster.h"

#include <fmt/format.h>
#include <fmt/printf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/cluster/hostfile.h"
#include "launch/cluster/tf_config.h"
#include "src/core/error.h"
#include "tests/support/text_of.h"

namespace carole::launch {
namespace {

constexpr const char* kCluster =
    R"("cluster": {"chief": ["h0:1"], "ps": ["h0:2"], "worker": ["h1:1", "h2:1"]})";

Cluster ClusterOf(const std::string& type, int index) {
  return ParseTfConfig(
      fmt::format(R"({{{}, "task": {{"type": "{}", "index": {}}}}})", kCluster, type, index), 0);
}

// Returns the error message of RequireWholeJob() for one process, or "".
std::string WholeJobError(const Cluster& cluster) {
  EXPECT_NO_THROW(RequireWholeJob(cluster, 3));
  try {
    RequireWholeJob(cluster, 1);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(Cluster, RefusesProcessesThatAreNotConnected) {
  for (const auto& [type, index] : {std::pair{"chief", 0}, {"worker", 0}, {"worker", 1}}) {
    EXPECT_EQ(
        WholeJobError(ClusterOf(type, index)),
        fmt::format("[cluster] job: its processes are not connected: got 1 rank, want 3 on 3 hosts "
                    "(this task is {} {}); start the job with carole launch -- train",
                    type, index));
  }
  EXPECT_THAT(
      WholeJobError(ParseTfConfig(fmt::format("{{{}}}", kCluster), 0)),
      testing::HasSubstr("not connected: got 1 rank, want 3 on 3 hosts (this task is unnamed)"));
}

TEST(Cluster, RefusesTasksThatDoNotTrain) {
  constexpr const char* kOneHost = R"({"cluster": {"master": ["h0:1"], "ps": ["h1:1"]},
                                          "task": {"type": "%s", "index": 0}})";
  for (const char* type : {"ps", "evaluator"}) {
    EXPECT_THAT(
        WholeJobError(ClusterOf(type, 0)),
        testing::HasSubstr(fmt::format("this task does not train: got 1 rank, want 3 on 3 hosts "
                                       "(this task is {} 0)",
                                       type)));
    EXPECT_THAT(WholeJobError(ParseTfConfig(fmt::sprintf(kOneHost, type), 0)),
                testing::HasSubstr("this task does not train: got 1 rank, want 1"));
  }
}

TEST(Cluster, AcceptsOneProcessInAJobOfOneRank) {
  EXPECT_EQ(WholeJobError(MakeLocalCluster(0)), "");
  EXPECT_EQ(WholeJobError(ParseTfConfig(R"({"cluster": {"master": ["h0:1"], "ps": ["h1:1"]},
                                        "task": {"type": "master", "index": 0}})",
                                        0)),
            "");
}

TEST(Cluster, LocalClusterHasOneRankPerGpu) {
  const Cluster cluster = MakeLocalCluster(4);
  EXPECT_EQ(cluster.size(), 4);
  EXPECT_EQ(cluster.hosts.front().name, "localhost");
  EXPECT_EQ(cluster.tasks.front().rank, 0);
}

TEST(Cluster, NeedsATrainingTask) {
  EXPECT_THROW(MakeCluster({{.role = Role::kParameterServer, .host = "h0"}}, 0), InternalError);
}

TEST(Hostfile, RejectsAnUnknownFormat) {
  EXPECT_EQ(TextOf<UsageError>([] { ParseFormat("yaml"); }),
            "[flags] \x1f$(format): no such format: got \"yaml\", want one of hostfile, host-list, "
            "ssh-config, json");
}

}  // namespace
}  // namespace carole::launch
