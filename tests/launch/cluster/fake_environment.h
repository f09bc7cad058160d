// Environment variables for tests.
#pragma once

#include <map>
#include <string>

#include "src/core/error.h"

namespace carole::testing {

// Can be passed as a GetEnvFunction. Its result is valid as long as the object lives.
class FakeEnvironment {
 public:
  FakeEnvironment(std::map<std::string, std::string> values)
      : values_(std::move(values)) {}  // NOLINT

  const char* operator()(const char* name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? nullptr : found->second.c_str();
  }

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace carole::testing
