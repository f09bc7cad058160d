// Everything that a golden file records about a net, compared with what a backend computes.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "nets/nets.h"
#include "src/backend/backend.h"
#include "tests/golden/report.h"

namespace carole::golden {

// Variables, parameter counts and end points: exactly. No kernel runs.
void CheckStructure(const nets::NetEntry& net, const nlohmann::json& golden);

// Logits, end points, losses, gradients and moving statistics, to the bounds of `report`.
void CheckNumbers(const nets::NetEntry& net, const nlohmann::json& golden, const Backend& backend,
                  DType compute, Report& report);

// False where the file has single-precision values only.
bool HasDoubles(const nlohmann::json& golden);

// Puts each fp32 value of such a file into the place of the double as well.
void TakeSinglesForDoubles(nlohmann::json& golden);

// Puts doubles of our own, from folder/<net>.json, into the places of training's logits, loss and
// gradients; marks that by "own_doubles" there. Does nothing when there is no such file.
void AddOwnDoubles(nlohmann::json& golden, const std::filesystem::path& folder);

// Makes that file: one training step of the reference backend in double. It takes hours and some
// 14 GB for vgg_416.
void RecordDoubles(const nets::NetEntry& net, const nlohmann::json& golden,
                   const Backend& reference, const std::filesystem::path& folder);

}  // namespace carole::golden
