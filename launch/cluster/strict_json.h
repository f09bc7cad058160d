// JSON as a job's configuration needs it: nothing is guessed, and what is wrong has a path.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace carole::launch {

// One JSON value, without text behind it, keys given twice or nesting deeper than 16; at most
// max_bytes. `where` starts the error's text: "[tf_config] TF_CONFIG". Throws ConfigError.
nlohmann::ordered_json ParseStrictJson(const std::string& where, std::string_view text,
                                       size_t max_bytes);

// A value in words for a message: a scalar as it is (strings quoted and cut), "a list of 3",
// "an object".
std::string DescribeJson(const nlohmann::ordered_json& value);

// "cluster" + "worker" -> "cluster.worker"; a key that is no plain word is quoted.
std::string JoinPath(const std::string& path, const std::string& key);

}  // namespace carole::launch
