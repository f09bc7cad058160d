// Compares a QuantizedSession with the files of tests/data/quantize.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/golden/quantized_session.h"

namespace carole::golden {

// Returns the folder of the files: tests/data/quantize, or what CAROLE_QUANTIZE_GOLDENS says.
std::string Folder();
nlohmann::json Load(const std::string& name);

// The net, the sizes and the labels of a file.
NetSetup SetupOf(const nlohmann::json& golden);
std::vector<int32_t> LabelsOf(const nlohmann::json& golden);

// The quantization that is last in the order in which the net computes.
std::string LastQuant(const nlohmann::json& golden);

// The tolerances are relative: to the value, and to the largest value of the rows.
void ExpectNear(double got, double want, double tolerance, const std::string& what);
void ExpectRows(const std::vector<double>& got, const nlohmann::json& want, double tolerance,
                const std::string& what);

// Compares ranges and results of fake quantization with rows of per_quant.
void CheckQuants(const QuantizedSession& session, const nlohmann::json& golden,
                 const nlohmann::json& rows, double tolerance);
// Compares gradients with rows [name, f64, f32], or with objects that also have samples.
void CheckGradients(const QuantizedSession& session, const nlohmann::json& rows, double tolerance);
void CheckLosses(const QuantizedSession& session, const nlohmann::json& want, double tolerance);

}  // namespace carole::golden
