#include "src/core/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "src/core/error.h"

namespace carole {
namespace {

// Returns the number that a setting holds; 0 if it holds a text.
double NumberIn(const Setting& setting) {
  return std::visit(
      [](const auto* value) -> double {
        if constexpr (std::is_same_v<decltype(value), const std::string*>) {
          return 0;
        } else {
          return static_cast<double>(*value);
        }
      },
      setting.value);
}

std::string Describe(const Range& range) {
  if (range.low == range.high) return fmt::format("{}", range.low);
  const bool has_low = range.low > -std::numeric_limits<double>::infinity();
  const bool has_high = range.high < std::numeric_limits<double>::infinity();
  if (has_low && has_high) {
    if (!range.excludes_low && !range.excludes_high)
      return fmt::format("{} to {}", range.low, range.high);
    return fmt::format("{} {} value {} {}", range.low, range.excludes_low ? "<" : "<=",
                       range.excludes_high ? "<" : "<=", range.high);
  }
  const std::string low = fmt::format("{}", range.low), high = fmt::format("{}", range.high);
  if (has_low) return range.excludes_low ? "more than " + low : low + " or more";
  return range.excludes_high ? "less than " + high : high + " or less";
}

}  // namespace

void CheckSettings(std::string_view tag, const Settings& settings) {
  for (const Setting& setting : settings) {
    const std::string* const* text = std::get_if<std::string*>(&setting.value);
    if (text == nullptr && !setting.range.Contains(NumberIn(setting))) {
      throw UsageError({.tag = tag,
                        .option = setting.name,
                        .problem = "out of range",
                        .got = NumberIn(setting),
                        .want = Describe(setting.range)});
    }
    if (text == nullptr || setting.choices.empty()) continue;
    if (std::ranges::find(setting.choices, **text) != setting.choices.end()) continue;
    std::string names;
    for (const std::string_view choice : setting.choices)
      names.append(names.empty() ? "one of " : ", ").append(choice);
    throw UsageError({.tag = tag,
                      .option = setting.name,
                      .problem = "unknown value",
                      .got = **text,
                      .want = names});
  }
}

std::string DescribeSettings(const Settings& settings) {
  std::string all;
  for (const Setting& setting : settings) {
    const std::string* const* text = std::get_if<std::string*>(&setting.value);
    const double number = NumberIn(setting);
    if (text == nullptr ? number == 0 : (*text)->empty()) continue;
    if (!all.empty()) all += ", ";
    all += text == nullptr ? fmt::format("{} {:g}", setting.name, number)
                           : fmt::format("{} {}", setting.name, **text);
  }
  return all;
}

}  // namespace carole
