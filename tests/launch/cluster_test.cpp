#include "launch/cluster.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "launch/hostfile.h"
#include "launch/tf_config.h"
#include "src/core/error.h"

namespace carole::launch {
namespace {

constexpr const char* kCluster =
    R"("cluster": {"chief": ["h0:1"], "ps": ["h0:2"], "worker": ["h1:1", "h2:1"]})";

Cluster ClusterOf(const std::string& type, int index) {
  return ParseTfConfig(
      fmt::format(R"({{{}, "task": {{"type": "{}", "index": {}}}}})", kCluster, type, index), 0);
}

TEST(Cluster, ProcessesThatBelieveToBeAloneAreRefused) {
  for (const auto& [type, index] :
       {std::pair{"chief", 0}, {"worker", 0}, {"worker", 1}, {"ps", 0}}) {
    const Cluster cluster = ClusterOf(type, index);
    try {
      RequireWholeJob(cluster, 1);
      ADD_FAILURE() << type << index;
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.what(),
                fmt::format("[cluster] job: each of its processes believes to be alone: got 1 "
                            "rank, want 3 on 3 machines ({} {} is this one); start it with carole "
                            "launch -- train",
                            type, index));
    }
    EXPECT_NO_THROW(RequireWholeJob(cluster, 3));
  }
}

TEST(Cluster, ProcessesThatMayBeAlone) {
  EXPECT_NO_THROW(RequireWholeJob(ClusterOf("evaluator", 0), 1));
  EXPECT_NO_THROW(RequireWholeJob(MakeLocalCluster(0), 1));
  EXPECT_NO_THROW(RequireWholeJob(ParseTfConfig(fmt::format("{{{}}}", kCluster), 0), 1));
}

TEST(Cluster, OneMachineHasARankForEachGpu) {
  const Cluster cluster = MakeLocalCluster(4);
  EXPECT_EQ(cluster.size(), 4);
  EXPECT_EQ(cluster.hosts.front().name, "localhost");
  EXPECT_EQ(cluster.tasks.front().rank, 0);
}

TEST(Cluster, NeedsSomebodyWhoTrains) {
  EXPECT_THROW(MakeCluster({{.role = Role::kParameterServer, .host = "h0"}}, 0), InternalError);
}

TEST(Hostfile, UnknownFormat) {
  try {
    ParseFormat("yaml");
    ADD_FAILURE();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "[flags] --format: no such format: got \"yaml\", want one of hostfile, host-list, "
                 "ssh-config, json");
  }
}

}  // namespace
}  // namespace carole::launch
