// Parses the flags of settings.h. Ends with code 77 if programs cannot be traced here.
#include <gmock/gmock.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "tests/durability/settings.h"
#include "tests/durability/tracer.h"

namespace carole::testing {

Settings& TestSettings() {
  static Settings settings;
  return settings;
}

namespace {

// Returns the number after `start`, or `otherwise`.
size_t NumberAfter(std::string_view word, std::string_view start, size_t otherwise) {
  return word.starts_with(start) ? std::stoul(std::string(word.substr(start.size()))) : otherwise;
}

}  // namespace
}  // namespace carole::testing

int main(int argc, char** argv) {
  using carole::testing::NumberAfter;
  ::testing::InitGoogleMock(&argc, argv);
  carole::testing::Settings& settings = carole::testing::TestSettings();
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    settings.exhaustive |= word == "--exhaustive";
    settings.first = NumberAfter(word, "--first=", settings.first);
    settings.last = NumberAfter(word, "--last=", settings.last);
  }
  const bool traces = !::testing::GTEST_FLAG(filter).starts_with("Damaged");
  const std::string reason = traces ? carole::testing::WhyNotTraceable() : "";
  if (!reason.empty()) {
    std::printf("skipped: programs cannot be traced here: %s\n", reason.c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}
