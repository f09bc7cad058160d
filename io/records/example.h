// Reads and builds tf.train.Example messages: named lists of bytes, floats or integers. A TFRecord
// of an image holds one such message.
//
// Reading copies nothing: results are views into the record. Packed and unpacked lists, any order
// of keys and unknown fields are accepted. If a key occurs twice, the last value wins, as in
// TensorFlow.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace carole::io {

// A key to look for and the result: the bytes of the key's Feature message, or nullopt.
struct FeatureQuery {
  std::string_view key;
  std::optional<std::string_view> feature = std::nullopt;
};

// Fills in the queries' features in one pass over a serialized Example. The results are views into
// `example`. Throws DataError if the message is malformed.
void FindFeatures(std::string_view example, std::span<FeatureQuery> queries);

// Returns the single value of a feature, or nullopt if the feature was not found, has no list, or
// has an empty list. Throws DataError, with the query's key, if the feature holds several values or
// another kind of list, or is malformed.
std::optional<std::string_view> SingleBytes(const FeatureQuery& query);
std::optional<int64_t> SingleInt64(const FeatureQuery& query);

// Returns all values of a feature. Throws as above.
std::vector<std::string_view> AllBytes(const FeatureQuery& query);
std::vector<int64_t> AllInt64(const FeatureQuery& query);
std::vector<float> AllFloats(const FeatureQuery& query);

// Returns every key of an Example with its Feature, in the order of the message. `carole dataset
// show` uses it.
std::vector<FeatureQuery> ListFeatures(std::string_view example);

// Builds a serialized Example. Its features are in the order of the calls of Add().
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
