// tf.train.Example: named lists of bytes, floats or integers, as TFRecords of images hold them.
//
// Reading copies nothing: what is found are views into the record. Packed and unpacked lists, any
// order of keys and unknown fields are accepted; of a key that comes twice the last value wins, as
// TensorFlow has it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace carole::io {

// A key that is looked for, and what was found: the bytes of its Feature message, or nullopt.
struct FeatureQuery {
  std::string_view key;
  std::optional<std::string_view> feature = std::nullopt;
};

// Finds the queries' features in one pass over a serialized Example. Throws DataError when the
// message is malformed.
void FindFeatures(std::string_view example, std::span<FeatureQuery> queries);

// The value of a found feature; nullopt when the list is empty or the feature has no list. Throws
// DataError, with the query's key, when the feature holds several values or another kind of list,
// or is malformed.
std::optional<std::string_view> OnlyBytes(const FeatureQuery& query);
std::optional<int64_t> OnlyInt64(const FeatureQuery& query);

// All values of a found feature. Throws as above.
std::vector<std::string_view> AllBytes(const FeatureQuery& query);
std::vector<int64_t> AllInt64(const FeatureQuery& query);
std::vector<float> AllFloats(const FeatureQuery& query);

// Every key of an Example with its Feature, in the order of the message (for `carole dataset
// show`).
std::vector<FeatureQuery> ListFeatures(std::string_view example);

// Builds a serialized Example, features in the order of the calls.
class ExampleBuilder {
 public:
  void Add(std::string_view key, std::string_view bytes);
  void Add(std::string_view key, int64_t value) { Add(key, std::span(&value, 1)); }
  void Add(std::string_view key, std::span<const int64_t> values);
  void Add(std::string_view key, std::span<const float> values);

  std::string Finish() const;

 private:
  void AddEntry(std::string_view key, const std::string& feature);

  std::string features_;
};

}  // namespace carole::io
