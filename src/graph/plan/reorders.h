// The part of the compiler that provides values in the layouts and types that kernels want. Private
// to this room: compiler.cpp explains it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/graph/plan/plan_builder.h"

namespace carole {

// Adds reorders and casts to a plan.
class Reorders {
 public:
  // `builder` must outlive this.
  explicit Reorders(PlanBuilder& builder);

  // Returns a representation of the value in this layout and type. Adds a reorder or cast if there
  // is none yet. `reader` gives the new step its name. Throws InternalError if no step has computed
  // the value.
  int Obtain(ValueId value, const Layout& layout, DType dtype, const Node& reader);
  // Adds a step that copies one representation to another.
  void AddReorder(int from, int to, const Node& node);

  // Forgets the copies of a value, so that later readers get new ones.
  void ForgetCopies(ValueId value) { copies_.erase(value); }

  // Whether casts are done in batches: by backends that have a kernel for many casts, such as GPUs,
  // where a launch takes longer than most casts.
  bool batches_casts() const { return batches_casts_; }
  // Adds the casts of gradients that are waiting for their batch.
  void AddGradientCasts();
  // Adds the cast of all weights. Call it when all other steps have been added.
  void AddWeightCasts();

 private:
  // Casts without change of layout that one kernel will do together.
  struct Casts {
    std::vector<int> from, to;
    size_t bytes = 0;
  };

  bool DeferCast(int from, int to);
  std::unique_ptr<Kernel> MakeCasts(const Casts& casts) const;

  PlanBuilder& builder_;
  const Graph& graph_;
  const Backend& backend_;
  const bool batches_casts_;
  Casts weight_casts_, gradient_casts_;
  std::map<ValueId, std::vector<int>> copies_;  // all representations but the primary one
};

}  // namespace carole
