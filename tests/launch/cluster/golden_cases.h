// Test cases in files of tests/data: a list of objects, each with a name and a tf_config.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace carole::testing {

using Json = nlohmann::ordered_json;

inline Json ReadCases(const std::string& file_name) {
  std::ifstream file(std::string(CAROLE_TEST_DATA) + "/" + file_name);
  return Json::parse(file);
}

// Returns the text of TF_CONFIG in a case. A string is used as it is, so it may be malformed JSON;
// other values are printed as JSON.
inline std::string TfConfigText(const Json& golden) {
  const Json& config = golden.at("tf_config");
  return config.is_string() ? config.get<std::string>() : config.dump();
}

}  // namespace carole::testing
