// Tests valid and invalid TF_CONFIGs against the golden cases in tests/data/launch_*.json.
#include "launch/cluster/tf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>

#include "launch/cluster/hostfile.h"
#include "src/core/error.h"
#include "tests/launch/cluster/golden_cases.h"

namespace carole::launch {
namespace {

using carole::testing::Json;
using carole::testing::ReadCases;
using carole::testing::TfConfigText;

// Returns the error message of ParseTfConfig(), or "".
std::string ErrorOf(const std::string& text) {
  try {
    ParseTfConfig(text, 0);
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.code(), ExitCode::kConfiguration);
    return error.what();
  }
  return "";
}

// Returns a TF_CONFIG whose only worker has this host name.
std::string ConfigOfWorker(const std::string& name) {
  const Json config{{"cluster", {{"worker", {name + ":22"}}}}};
  return config.dump();
}

class GoldenCase : public ::testing::TestWithParam<Json> {};

std::string NameOf(const ::testing::TestParamInfo<Json>& info) {
  std::string name = std::to_string(info.index) + "_" + info.param.at("name").get<std::string>();
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

using GoodTfConfig = GoldenCase;

TEST_P(GoodTfConfig, PrintsAsRecorded) {
  const Json& golden = GetParam();
  const Cluster cluster = ParseTfConfig(TfConfigText(golden), golden.at("num_gpus"));
  for (const char* format : {"hostfile", "host-list", "ssh-config"}) {
    EXPECT_EQ(ClusterText(cluster, ParseFormat(format)), golden.at(format).get<std::string>())
        << format;
  }
  EXPECT_EQ(Json::parse(ClusterText(cluster, Format::kJson)), golden.at("json"));
}

// All tasks of a job compute the same hosts and ranks.
TEST_P(GoodTfConfig, ClusterDoesNotDependOnTheTask) {
  const Json& golden = GetParam();
  if (!golden.at("tf_config").is_object()) return;
  Json without = golden.at("tf_config");
  without.erase("task");
  Json map = golden.at("json");
  map["me"] = nullptr;
  const Cluster cluster = ParseTfConfig(without.dump(), golden.at("num_gpus"));
  EXPECT_EQ(Json::parse(ClusterText(cluster, Format::kJson)), map);
}

INSTANTIATE_TEST_SUITE_P(Launch, GoodTfConfig,
                         ::testing::ValuesIn(ReadCases("launch_clusters.json")), NameOf);

class BadTfConfig : public GoldenCase {};

TEST_P(BadTfConfig, HasTheRecordedMessage) {
  EXPECT_EQ(ErrorOf(TfConfigText(GetParam())), GetParam().at("message").get<std::string>());
}

INSTANTIATE_TEST_SUITE_P(Launch, BadTfConfig, ::testing::ValuesIn(ReadCases("launch_errors.json")),
                         NameOf);

TEST(TfConfig, RejectsBadUtf8) {
  EXPECT_EQ(
      ErrorOf("{\"cluster\": \"\xff\"}"),
      "[tf_config] TF_CONFIG: malformed JSON at byte 14: got \"{\\\"cluster\\\": \\\"\\ufffd\" "
      "there, want one object");
}

TEST(TfConfig, RejectsTooLongText) {
  std::string text = "{}" + std::string(kMaxTfConfigBytes - 2, ' ');
  EXPECT_EQ(ErrorOf(text), "");
  EXPECT_EQ(ErrorOf(text + " "),
            "[tf_config] TF_CONFIG: too long: got 1048577 bytes, want at most 1048576");
}

TEST(TfConfig, AcceptsHostNamesOfAtMost253Characters) {
  std::string name(63, 'a');
  name += "." + name + "." + name + "." + std::string(61, 'b');
  ASSERT_EQ(name.size(), 253);
  EXPECT_EQ(ErrorOf(ConfigOfWorker(name)), "");
  EXPECT_EQ(ErrorOf(ConfigOfWorker(name + ".")), "");
  EXPECT_EQ(ErrorOf(ConfigOfWorker(name + "b")),
            "[tf_config] cluster.worker[0]: host name too long: got \"" + std::string(63, 'a') +
                ".\" and 190 more bytes, want at most 253 characters");
}

TEST(TfConfig, AcceptsOnlyLettersDigitsDashesUnderscoresAndDots) {
  for (int c = 0; c < 128; ++c) {
    const char character = static_cast<char>(c);
    const bool is_good =
        std::isalnum(c) != 0 || character == '-' || character == '_' || character == '.';
    const std::string error = ErrorOf(ConfigOfWorker(std::string("a") + character + "b"));
    EXPECT_EQ(error.empty(), is_good) << c << ": " << error;
  }
}

TEST(TfConfig, AcceptsALargeJob) {
  Json workers = Json::array();
  for (int i = 0; i < 5000; ++i) workers.push_back("node-" + std::to_string(i) + ":2222");
  const Json config{{"cluster", {{"worker", workers}}},
                    {"task", {{"type", "worker"}, {"index", 4999}}}};
  const Cluster cluster = ParseTfConfig(config.dump(), 8);
  EXPECT_EQ(cluster.size(), 40000);
  EXPECT_EQ(cluster.hosts.size(), 5000);
  EXPECT_EQ(cluster.me->rank, 39992);
}

}  // namespace
}  // namespace carole::launch
