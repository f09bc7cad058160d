// How ranks check each other's gradients.
//
// The problem. A processor that multiplies wrongly once gives its rank a wrong gradient. The
// all-reduce adds it to the sum, and every rank applies the same wrong sum. So all replicas stay
// equal, and no audit of them shows anything. Only a second computation of the same gradient does.
//
// The check. Every K steps, before the gradients are reduced:
//   1. Each rank keeps its own gradients and running statistics, and digests the gradients.
//   2. It gets the batch of the rank before it (BatchExchange), computes forward and backward, and
//      digests that result. Weights are equal on all ranks, and dropout depends only on the seed,
//      the step and the sample numbers. Batch norm in training reads no running statistics.
//   3. It puts its own gradients and statistics back.
//   4. The ranks exchange digests. All ranks have the same data and make the same decisions below.
//
// If gradients are accumulated, 1 to 4 concern the last micro-batch of the step.
//
// The decision. If the results of rank r and of its checker r+1 differ, rank r+2 gets the batch of
// r from a broadcast, and computes it as well. The one of the two that it disagrees with is wrong.
// If there are two ranks, both compute that batch once more, and the one that does not
// get its own result again is wrong. If that decides nothing, the job ends.
//
//   Example: 4 ranks; a core of rank 1 is bad in this step.
//     rank      own gradients    of the rank before
//     0         a                d           d = d: rank 3 is right
//     1         b' (wrong)       a           a = a: rank 0 is right
//     2         c                b           b != b': rank 3 computes b as well: rank 1 is wrong
//     3         d                c           c = c: rank 2 is right
//   Rank 1 computes its step again and gets b. Then the step goes on, as if nothing had happened:
//   nothing was reduced or applied yet.
//
// A rank that is wrong twice within RankFaults::kWindow steps ends the job. The repetition counts,
// so a permanent fault ends it at once.
//
// The comparison. Ranks with the same processor and number of threads run the same instructions
// in the same order, so their bits must be equal. Other ranks round differently. They compare
// sketches (gradient_digest.h): the distance of the gradients must be at most a fraction of their
// norm. In fp32, rounding causes 1e-7 to 1e-4 of the norm, as a tie in a ReLU or max pooling may
// break differently; the bound is 1e-3. With 16-bit activations, rounding causes about 1e-2; the
// bound is 1e-1. So in a job of mixed processors, errors below the bound are not found. A relative
// bound for each variable would not work: some gradients are zero except for rounding, such as
// those of weights before a batch norm.
//
// Cost. One forward and backward of a micro-batch, the transfer of one batch, and a reduction
// without overlap, once in K steps.
#include "src/train/integrity/cross_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "collectives/ranks/replica_check.h"
#include "src/core/dtype.h"
#include "src/core/error.h"
#include "src/core/hash.h"
#include "src/core/log.h"
#include "src/core/rng.h"

namespace carole::train {
namespace {

constexpr double kBound = 1e-3;
constexpr double kBoundIn16Bits = 1e-1;

collectives::Tag CheckTag(int64_t step) { return {.what = "cross-check", .step = step}; }

uint64_t SumOf(const GradientDigest& digest) {
  uint64_t sum = 0;
  for (const VariableDigest& d : digest) sum = SplitMix64(sum ^ d.hash);
  return sum;
}

void Save(const std::byte* from, size_t bytes, std::vector<std::byte>& to) {
  to.resize(bytes);
  if (bytes > 0) std::memcpy(to.data(), from, bytes);
}

void Restore(const std::vector<std::byte>& from, std::byte* to) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

}  // namespace

CrossCheck::CrossCheck(collectives::Communicator& communicator, const VariableStore& store,
                       RankFaults& faults, const CrossCheckOptions& options)
    : communicator_(communicator),
      store_(store),
      faults_(faults),
      options_(options),
      bound_(IsNarrow(store.backend().activation_dtype()) ? kBoundIn16Bits : kBound),
      processors_(AllGather(communicator, Fnv1a64(options.processor), {.what = "processors"})),
      is_mixed_(std::ranges::count(processors_, processors_[0]) != communicator.size()) {
  if (is_mixed_ && communicator.rank() == 0)
    LogInfo("cross-check",
            "ranks have different processors or numbers of threads: gradients are compared within "
            "{} of their norm, not bit by bit",
            bound_);
}

Tolerance CrossCheck::ToleranceOf(int a, int b) const {
  return {.is_exact = processors_[a] == processors_[b], .bound = bound_};
}

const std::string& CrossCheck::NameOf(size_t gradient) const {
  return store_.variables()[store_.ready_order()[gradient]].name;
}

void CrossCheck::Save() {
  train::Save(store_.gradients_base(), store_.weights_bytes(), saved_gradients_);
  train::Save(store_.statistics_base(), store_.statistics_bytes(), saved_statistics_);
}

void CrossCheck::Restore() const {
  train::Restore(saved_gradients_, store_.gradients_base());
  train::Restore(saved_statistics_, store_.statistics_base());
}

// Returns the digests of all ranks.
std::vector<GradientDigest> CrossCheck::Gather(const GradientDigest& digest, int64_t step) const {
  const auto all =
      collectives::AllGatherValues<VariableDigest>(communicator_, digest, CheckTag(step));
  std::vector<GradientDigest> digests;
  for (auto begin = all.begin(); begin != all.end(); begin += std::ssize(digest))
    digests.emplace_back(begin, begin + std::ssize(digest));
  return digests;
}

// Returns the digest of one rank, on every rank.
GradientDigest CrossCheck::DigestFrom(int rank, const GradientDigest& digest, int64_t step) const {
  GradientDigest copy(store_.ready_order().size());
  if (communicator_.rank() == rank) copy = digest;
  communicator_.Broadcast(std::as_writable_bytes(std::span(copy)), rank, CheckTag(step));
  return copy;
}

// Compares one number of each rank with that of its checker.
bool CrossCheck::AllSumsAgree(const Digests& mine, int64_t step) const {
  const std::array<uint64_t, 2> sums = {SumOf(mine.own), SumOf(mine.previous)};
  const auto all = AllGather(communicator_, sums, CheckTag(step));
  for (int rank = 0; rank < size(); ++rank) {
    if (all[rank][0] != all[Next(rank)][1]) return false;
  }
  return true;
}

// Returns the digest of the gradients of this batch.
GradientDigest CrossCheck::Recompute(const CheckedBatch& batch, const Compute& compute) const {
  compute.recompute(batch);
  GradientDigest digest = DigestGradients(store_, is_mixed_);
  Restore();
  return digest;
}

// Returns the digests of all ranks.
std::vector<CrossCheck::Digests> CrossCheck::Exchange(const Digests& mine, int64_t step) const {
  const std::vector<GradientDigest> own = Gather(mine.own, step);
  const std::vector<GradientDigest> previous = Gather(mine.previous, step);
  std::vector<Digests> all;
  for (int rank = 0; rank < size(); ++rank)
    all.push_back({.own = own[rank], .previous = previous[rank]});
  return all;
}

void CrossCheck::Run(const CheckedBatch& mine, int64_t step, const Compute& compute) {
  if (size() == 1) return;
  Save();
  Digests digests{.own = DigestGradients(store_, is_mixed_), .previous = {}};
  digests.previous = Recompute(exchange_.FromPreviousRank(communicator_, mine, step), compute);
  if (AllSumsAgree(digests, step)) return;
  const std::vector<Digests> all = Exchange(digests, step);
  Faults faults;
  for (int rank = 0; rank < size(); ++rank) {
    const int checker = Next(rank);
    const GradientDigest &own = all[rank].own, &checked = all[checker].previous;
    const auto gradient = FirstDifference(own, checked, ToleranceOf(rank, checker));
    if (!gradient) continue;
    const int wrong = FindWrong(rank, own, checked, mine, step, compute);
    Fault& fault = faults.try_emplace(wrong, Fault{.gradient = *gradient}).first->second;
    if (wrong == rank) fault = {.gradient = *gradient, .is_own = true, .correct = checked};
  }
  for (const auto& [rank, fault] : faults) Record(rank, fault, step);
  Repeat(faults, step, compute);
}

// Returns the one of `rank` and its checker that is wrong. `own` and `checked` are the digests that
// they got for the batch of `rank`. Throws ReplicaError if nobody can tell.
int CrossCheck::FindWrong(int rank, const GradientDigest& own, const GradientDigest& checked,
                          const CheckedBatch& mine, int64_t step, const Compute& compute) {
  const int checker = Next(rank), judge = Next(rank, 2);
  const bool has_judge = size() > 2;
  const CheckedBatch& batch = exchange_.FromRank(communicator_, rank, mine, step);
  GradientDigest again(own.size());
  if (!has_judge || communicator_.rank() == judge) again = Recompute(batch, compute);
  // If there are two ranks, each one judges itself.
  const std::vector<GradientDigest> all = Gather(again, step);
  const auto is_right = [&](int which, const GradientDigest& digest) {
    const int other = has_judge ? judge : which;
    return !FirstDifference(digest, all[other], ToleranceOf(which, other));
  };
  const bool is_rank_right = is_right(rank, own), is_checker_right = is_right(checker, checked);
  if (is_rank_right != is_checker_right) return is_rank_right ? checker : rank;
  const size_t gradient =
      FirstDifference(own, checked, ToleranceOf(rank, checker)).value_or(size_t{0});
  throw collectives::ReplicaError(fmt::format(
      "[cross-check] {}: gradients differ at step {}: {} and {} got different results from one "
      "batch, and {}; check processor and memory of these hosts; the last checkpoint is good",
      NameOf(gradient), step, communicator_.NameOf(rank), communicator_.NameOf(checker),
      has_judge
          ? fmt::format("{} agrees with {} of them", communicator_.NameOf(judge),
                        is_rank_right ? "both" : "none")
          : fmt::format("{} of them gets its result again", is_rank_right ? "each" : "none")));
}

// Records that a rank was wrong, and logs it. Throws ReplicaError if it was wrong before.
void CrossCheck::Record(int rank, const Fault& fault, int64_t step) {
  const std::string& variable = NameOf(fault.gradient);
  if (const auto previous = faults_.Record(rank, step))
    throw collectives::ReplicaError(fmt::format(
        "[cross-check] {}: wrong gradient at step {}: {} differs from what other ranks compute, "
        "after an error at step {}; check processor and memory of this host, or start without it",
        communicator_.NameOf(rank), step, variable, *previous));
  if (communicator_.rank() != 0) return;
  LogWarning("cross-check",
             "{}: wrong gradient at step {}: {} differs from what other ranks compute; {}; check "
             "processor and memory of this host if this is repeated",
             communicator_.NameOf(rank), step, variable,
             fault.is_own ? "it computes its step again"
                          : "it was wrong as a checker, so the step is good");
}

// Lets the ranks whose own gradients are wrong compute them again, and checks the result.
void CrossCheck::Repeat(const Faults& faults, int64_t step, const Compute& compute) {
  const auto mine = faults.find(communicator_.rank());
  GradientDigest digest;
  if (mine != faults.end() && mine->second.is_own) {
    compute.repeat();
    digest = DigestGradients(store_, is_mixed_);
  }
  for (const auto& [rank, fault] : faults) {
    if (!fault.is_own) continue;
    const GradientDigest repeated = DigestFrom(rank, digest, step);
    const auto gradient = FirstDifference(repeated, fault.correct, ToleranceOf(rank, Next(rank)));
    if (gradient) Record(rank, {.gradient = *gradient, .is_own = true, .correct = {}}, step);
  }
}

std::unique_ptr<CrossCheck> MakeCrossCheck(collectives::Communicator& communicator,
                                           const VariableStore& store, RankFaults& faults,
                                           const CrossCheckOptions& options) {
  if (options.every_n_steps == 0) return nullptr;
  const Backend& backend = store.backend();
  if (backend.has_own_memory() || backend.is_asynchronous()) {
    throw UsageError({.tag = "train",
                      .option = "cross_check_every",
                      .got = "a device",
                      .want = "a backend that computes on the processor"});
  }
  if (communicator.size() == 1) {
    LogWarning("cross-check", "{}: has no effect: there is no other rank",
               Option("cross_check_every"));
    return nullptr;
  }
  return std::make_unique<CrossCheck>(communicator, store, faults, options);
}

}  // namespace carole::train
