// Settings: values that the user may change, declared by the code that they belong to (an
// optimizer, an augmentation). The commands make a flag of each setting, so a setting is written in
// one place.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace carole {

// The allowed values of a number.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool excludes_low = false, excludes_high = false;

  // False for NaN.
  bool Contains(double value) const {
    return (excludes_low ? value > low : value >= low) &&
           (excludes_high ? value < high : value <= high);
  }
};
inline constexpr Range MoreThan(double low) { return {.low = low, .excludes_low = true}; }
inline constexpr Range AtLeast(double low) { return {.low = low}; }
inline constexpr Range AtMost(double high) { return {.high = high}; }
inline constexpr Range Between(double low, double high) { return {.low = low, .high = high}; }
// 0 <= value < 1
inline constexpr Range kFraction = {.low = 0, .high = 1, .excludes_high = true};

struct Setting {
  std::string_view name;  // also the name of the flag
  std::string_view help;  // one sentence, for the flag
  // The value is in the object that declares the setting. Its content at first is the default.
  std::variant<bool*, int64_t*, double*, std::string*> value;
  Range range = {};                            // of a number
  std::vector<std::string_view> choices = {};  // of a text; empty: any
};
using Settings = std::vector<Setting>;

// Throws UsageError, whose text begins with `tag` and names the setting, if a value is not allowed.
void CheckSettings(std::string_view tag, const Settings& settings);

// Returns "name value" for each setting that differs from 0, false and the empty text, joined by
// commas.
std::string DescribeSettings(const Settings& settings);

}  // namespace carole
