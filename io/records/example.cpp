#include "io/records/example.h"

#include <fmt/format.h>

#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

#include "src/core/error.h"

namespace carole::io {
namespace {

using protozero::pbf_reader;
using protozero::pbf_wire_type;
using protozero::tag_and_type;

constexpr auto kMessage1 = tag_and_type(1, pbf_wire_type::length_delimited);
constexpr auto kMessage2 = tag_and_type(2, pbf_wire_type::length_delimited);

// Field numbers of the lists in the message Feature.
enum class ListKind : uint32_t { kBytes = 1, kFloat = 2, kInt64 = 3 };

std::string_view ToView(protozero::data_view view) { return {view.data(), view.size()}; }
pbf_reader Reader(std::string_view bytes) { return pbf_reader(bytes.data(), bytes.size()); }

std::string_view KindName(uint32_t tag) {
  constexpr std::string_view kNames[] = {"nothing", "bytes", "floats", "integers"};
  return tag < std::size(kNames) ? kNames[tag] : "an unknown list";
}

// Runs the parser `f` and converts protozero's exceptions to DataError. `what` names the parsed
// message.
template <typename F>
void Parse(const std::string& what, F&& f) {
  try {
    f();
  } catch (const protozero::exception& e) {
    throw DataError(fmt::format("[io.example] {}: malformed protobuf: {}", what, e.what()));
  }
}

// Calls visit(key, feature) for each entry of the Example's map; `feature` is a serialized Feature.
template <typename Visit>
void VisitFeatures(std::string_view bytes, Visit&& visit) {
  for (pbf_reader example = Reader(bytes); example.next();) {
    if (example.tag_and_type() != kMessage1) {
      example.skip();
      continue;
    }
    for (pbf_reader features = example.get_message(); features.next();) {
      if (features.tag_and_type() != kMessage1) {
        features.skip();
        continue;
      }
      std::string_view key;
      std::string_view feature;
      for (pbf_reader entry = features.get_message(); entry.next();) {
        switch (entry.tag_and_type()) {
          case kMessage1:
            key = ToView(entry.get_view());
            break;
          case kMessage2:
            feature = ToView(entry.get_view());
            break;
          default:
            entry.skip();
        }
      }
      visit(key, feature);
    }
  }
}

// Calls visit(reader) at each `value` field of the feature's list. Does nothing if the feature was
// not found.
template <typename Visit>
void VisitList(const FeatureQuery& query, ListKind kind, Visit&& visit) {
  if (!query.feature) return;
  Parse(fmt::format("feature {}", query.key), [&] {
    for (pbf_reader feature = Reader(*query.feature); feature.next();) {
      const uint32_t tag = feature.tag();
      if (feature.wire_type() != pbf_wire_type::length_delimited || tag > 3) {
        feature.skip();
        continue;
      }
      if (tag != static_cast<uint32_t>(kind)) {
        throw DataError(fmt::format("[io.example] feature {}: wrong type: got {}, want {}",
                                    query.key, KindName(tag),
                                    KindName(static_cast<uint32_t>(kind))));
      }
      for (pbf_reader list = feature.get_message(); list.next();) {
        if (list.tag() == 1) {
          visit(list);
        } else {
          list.skip();
        }
      }
    }
  });
}

template <typename Visit>
void VisitBytes(const FeatureQuery& query, Visit&& visit) {
  VisitList(query, ListKind::kBytes, [&](pbf_reader& list) {
    if (list.wire_type() == pbf_wire_type::length_delimited) {
      visit(ToView(list.get_view()));
    } else {
      list.skip();
    }
  });
}

template <typename Visit>
void VisitInt64(const FeatureQuery& query, Visit&& visit) {
  VisitList(query, ListKind::kInt64, [&](pbf_reader& list) {
    if (list.wire_type() == pbf_wire_type::varint) {
      visit(list.get_int64());
    } else if (list.wire_type() == pbf_wire_type::length_delimited) {
      for (int64_t value : list.get_packed_int64()) visit(value);
    } else {
      list.skip();
    }
  });
}

// Stores the first value in `only`; throws DataError for a second one.
template <typename T>
void SetOnly(const FeatureQuery& query, std::optional<T>& only, T value) {
  if (only) {
    throw DataError(fmt::format(
        "[io.example] feature {}: several values: got more than one, want one", query.key));
  }
  only = value;
}

}  // namespace

void FindFeatures(std::string_view example, std::span<FeatureQuery> queries) {
  for (FeatureQuery& query : queries) query.feature.reset();
  Parse("example", [&] {
    VisitFeatures(example, [&](std::string_view key, std::string_view feature) {
      for (FeatureQuery& query : queries) {
        if (query.key == key) query.feature = feature;
      }
    });
  });
}

std::vector<FeatureQuery> ListFeatures(std::string_view example) {
  std::vector<FeatureQuery> all;
  Parse("example", [&] {
    VisitFeatures(example, [&](std::string_view key, std::string_view feature) {
      all.push_back({.key = key, .feature = feature});
    });
  });
  return all;
}

std::optional<std::string_view> SingleBytes(const FeatureQuery& query) {
  std::optional<std::string_view> only;
  VisitBytes(query, [&](std::string_view value) { SetOnly(query, only, value); });
  return only;
}

std::optional<int64_t> SingleInt64(const FeatureQuery& query) {
  std::optional<int64_t> only;
  VisitInt64(query, [&](int64_t value) { SetOnly(query, only, value); });
  return only;
}

std::vector<std::string_view> AllBytes(const FeatureQuery& query) {
  std::vector<std::string_view> all;
  VisitBytes(query, [&](std::string_view value) { all.push_back(value); });
  return all;
}

std::vector<int64_t> AllInt64(const FeatureQuery& query) {
  std::vector<int64_t> all;
  VisitInt64(query, [&](int64_t value) { all.push_back(value); });
  return all;
}

std::vector<float> AllFloats(const FeatureQuery& query) {
  std::vector<float> all;
  VisitList(query, ListKind::kFloat, [&](pbf_reader& list) {
    if (list.wire_type() == pbf_wire_type::fixed32) {
      all.push_back(list.get_float());
    } else if (list.wire_type() == pbf_wire_type::length_delimited) {
      const std::string_view packed = ToView(list.get_view());
      if (packed.size() % sizeof(float) != 0) throw protozero::invalid_length_exception{};
      const size_t start = all.size();
      all.resize(start + packed.size() / sizeof(float));
      packed.copy(reinterpret_cast<char*>(all.data() + start), packed.size());
    } else {
      list.skip();
    }
  });
  return all;
}

void ExampleBuilder::AddEntry(std::string_view key, const std::string& feature) {
  std::string entry;
  protozero::pbf_writer writer(entry);
  writer.add_bytes(1, key.data(), key.size());
  writer.add_message(2, feature);
  protozero::pbf_writer(features_).add_message(1, entry);
}

void ExampleBuilder::Add(std::string_view key, std::string_view bytes) {
  std::string list;
  protozero::pbf_writer(list).add_bytes(1, bytes.data(), bytes.size());
  std::string feature;
  protozero::pbf_writer(feature).add_message(1, list);
  AddEntry(key, feature);
}

void ExampleBuilder::Add(std::string_view key, std::span<const int64_t> values) {
  std::string list;
  protozero::pbf_writer(list).add_packed_int64(1, values.begin(), values.end());
  std::string feature;
  protozero::pbf_writer(feature).add_message(3, list);
  AddEntry(key, feature);
}

void ExampleBuilder::Add(std::string_view key, std::span<const float> values) {
  std::string list;
  protozero::pbf_writer(list).add_packed_float(1, values.begin(), values.end());
  std::string feature;
  protozero::pbf_writer(feature).add_message(2, list);
  AddEntry(key, feature);
}

std::string ExampleBuilder::Finish() const {
  std::string example;
  protozero::pbf_writer(example).add_message(1, features_);
  return example;
}

}  // namespace carole::io
