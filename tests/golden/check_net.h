// Compares everything that a golden file records about a net with what a backend computes. A golden
// file has values of a reference program, usually TensorFlow, in double (f64) and in fp32 (f32).
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "nets/nets.h"
#include "src/backend/backend.h"
#include "tests/golden/report.h"

namespace carole::golden {

// Checks that the net has the recorded variables and numbers of parameters. Runs no kernel.
void CheckStructure(const nets::NetEntry& net, const nlohmann::json& golden);

// Checks logits, end points, losses, gradients and moving statistics, within the bounds of
// `report`.
void CheckNumbers(const nets::NetEntry& net, const nlohmann::json& golden, const Backend& backend,
                  DType compute, Report& report);

// Whether the file has values in double. Files of very large nets have fp32 values only. These
// functions supply doubles for them.
bool HasDoubles(const nlohmann::json& golden);

// Copies each fp32 value to where the double should be.
void UseFp32AsDoubles(nlohmann::json& golden);

// Replaces the doubles of training's logits, loss and gradients by those of our own reference
// backend, from folder/<net>.json, and sets "own_doubles". Does nothing if there is no such file.
void AddOwnDoubles(nlohmann::json& golden, const std::filesystem::path& folder);

// Makes folder/<net>.json: one training step of the reference backend in double. For vgg_416 it
// takes hours and about 14 GB.
void RecordDoubles(const nets::NetEntry& net, const nlohmann::json& golden,
                   const Backend& reference, const std::filesystem::path& folder);

}  // namespace carole::golden
