// Strict parsing of JSON: duplicate keys, extra text and deep nesting are errors, and every error
// names the path of the value.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace carole::launch {

// Parses one JSON value. `where` is the start of error messages, such as "[tf_config] TF_CONFIG".
// Throws ConfigError if the text is longer than max_bytes or malformed, has text after the value,
// has a key twice in an object, or is nested deeper than 16 levels.
nlohmann::ordered_json ParseStrictJson(const std::string& where, std::string_view text,
                                       size_t max_bytes);

// Describes a value for a message: a scalar as JSON (long strings are truncated), "a list of 3", or
// "an object".
std::string DescribeJson(const nlohmann::ordered_json& value);

// Appends a key to a path: "cluster" and "worker" give "cluster.worker". A key that contains other
// characters than letters and underscores is quoted.
std::string JoinJsonPath(const std::string& path, const std::string& key);

}  // namespace carole::launch
