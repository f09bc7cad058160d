#include "tests/golden/quantize_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "src/backend/ops/fake_quant.h"
#include "tests/support/test_data.h"

namespace carole::golden {
namespace {

using nlohmann::json;

// Compares one row of per_quant: index, min, max, norm, mean code, ..., samples.
void CheckQuant(const QuantizedSession& session, const std::string& name, bool narrow, int bits,
                const json& row, double tolerance) {
  SCOPED_TRACE(name);
  const double min = session.Scalar(name + "/min"), max = session.Scalar(name + "/max");
  ExpectNear(min, row[1], tolerance, "min");
  ExpectNear(max, row[2], tolerance, "max");
  const auto found = session.quants().find(name);
  ASSERT_NE(found, session.quants().end());
  const std::vector<double> values = session.Output(found->second);
  ExpectNear(Norm(values), row[3], std::max(tolerance, 1e-8), "norm");
  const QuantGrid<double> grid(min, max, narrow ? 1 : 0, (1 << bits) - 1);
  double sum = 0;
  for (double v : values) sum += v / grid.scale + grid.zero_point;
  ExpectNear(sum / static_cast<double>(values.size()), row[4], std::max(tolerance, 1e-8),
             "mean code");
  if (narrow) return;  // samples of weights are in TensorFlow's order
  for (const json& sample : row.at(7)) {
    const double code = values.at(sample[0].get<size_t>()) / grid.scale + grid.zero_point;
    EXPECT_NEAR(code, sample[1].get<double>(), 1e-6) << sample[0];
  }
}

}  // namespace

std::string Folder() {
  const char* other = std::getenv("CAROLE_QUANTIZE_GOLDENS");
  return other != nullptr ? other : TestData() + "/quantize";
}

json Load(const std::string& name) {
  std::ifstream file(Folder() + "/" + name + ".json");
  return json::parse(file);
}

NetSetup SetupOf(const json& golden) {
  const json& shape = golden["input"]["shape"];
  const json& folded = golden["folded"];
  return {.net = golden["net"],
          .batch = shape[0],
          .size = shape[1],
          .channels = shape[3],
          .epsilon = folded.empty() ? 0 : folded[0][2].get<double>()};
}

std::vector<int32_t> LabelsOf(const json& golden) {
  return golden["labels"].get<std::vector<int32_t>>();
}

std::string LastQuant(const json& golden) {
  for (const json& quant : golden["fake_quant"]) {
    for (const json& reader : quant["to"]) {
      const std::string name = reader;
      if (name.find("Squeeze") != name.npos || name.find("squeeze") != name.npos ||
          name.find("xentropy") != name.npos)
        return quant["name"];
    }
  }
  return golden["fake_quant"].back()["name"];
}

void ExpectNear(double got, double want, double tolerance, const std::string& what) {
  EXPECT_NEAR(got, want, tolerance * std::max(std::abs(want), 1e-3)) << what;
}

void ExpectRows(const std::vector<double>& got, const json& want, double tolerance,
                const std::string& what) {
  std::vector<double> values;
  for (const json& row : want) values.insert(values.end(), row.begin(), row.end());
  ASSERT_EQ(got.size(), values.size()) << what;
  double largest = 0;
  for (double v : values) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], values[i], tolerance * largest) << what << " " << i;
}

void CheckQuants(const QuantizedSession& session, const json& golden, const json& rows,
                 double tolerance) {
  for (const json& row : rows) {
    const json& quant = golden["fake_quant"][row[0].get<size_t>()];
    CheckQuant(session, quant["name"], quant["narrow"], quant["bits"], row, tolerance);
  }
}

void CheckGradients(const QuantizedSession& session, const json& rows, double tolerance) {
  double largest = 0;
  for (const json& row : rows)
    largest = std::max(largest, (row.is_array() ? row[1] : row["l2_f64"]).get<double>());
  for (const json& row : rows) {
    const std::string name = row.is_array() ? row[0] : row["name"];
    const double want = row.is_array() ? row[1] : row["l2_f64"];
    const int v = session.Find(name);
    ASSERT_GE(v, 0) << name;
    const std::vector<double> gradient = session.Gradient(static_cast<size_t>(v));
    EXPECT_NEAR(Norm(gradient), want, tolerance * std::max(want, 1e-3 * largest)) << name;
    if (row.is_array()) continue;
    for (const json& sample : row["samples"]) {
      EXPECT_NEAR(gradient.at(sample[0].get<size_t>()), sample[1].get<double>(),
                  tolerance * std::max(want, 1e-3 * largest))
          << name << " " << sample[0];
    }
  }
}

void CheckLosses(const QuantizedSession& session, const json& want, double tolerance) {
  ExpectNear(session.CrossEntropy(), want["xent"]["f64"], tolerance, "cross-entropy");
  ExpectNear(session.RegularizationLoss(), want["reg"]["f64"], tolerance, "regularization");
  ExpectNear(session.TotalLoss(), want["total"]["f64"], tolerance, "total");
}

}  // namespace carole::golden
