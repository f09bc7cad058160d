// carole model list, carole model summary.
#include <fmt/format.h>

#include "nets/nets.h"
#include "nets/summary.h"
#include "src/backend/backend.h"
#include "src/commands/cli/command_line.h"
#include "src/commands/cli/commands.h"
#include "src/commands/flags/flags.h"
#include "src/graph/autodiff.h"
#include "src/graph/plan/recompute.h"
#include "src/graph/precision.h"
#include "src/graph/rewrites.h"

namespace carole::commands {
namespace {

constexpr double kStateBytes = 3 * sizeof(float);  // per parameter: weight, gradient, one slot
constexpr double kGiga = 1e9;
constexpr double kMiBOfGiB = 1024;

double MiB(double bytes) { return bytes / (1 << 20); }

// Prints the size of the auxiliary head, which only the training net has.
void PrintAuxiliaryHead(const nets::ParameterCount& net, const nets::ParameterCount& training) {
  if (training.trainable == net.trainable) return;
  fmt::print("training adds an auxiliary head: {} trainable parameters, {} running statistics\n",
             training.trainable - net.trainable, training.statistics - net.statistics);
}

// Prints some values of --activation_memory and the share of the forward pass that is computed
// twice with each. Training may need a little more memory, for the workspaces of kernels.
void PrintRecomputation(const Graph& graph, const Backend& backend, double peak) {
  for (const double share : {0.75, 0.5, 0.0}) {
    const RecomputePlan plan = PlanRecomputation(graph, backend, static_cast<size_t>(share * peak));
    const bool is_minimum = static_cast<double>(plan.peak_bytes) > share * peak;
    if (is_minimum && share > 0) continue;
    std::vector<MemoryBlock> blocks = Lifetimes(graph, plan.schedule);
    const double mib = MiB(static_cast<double>(PlanMemory(blocks)));
    fmt::print(
        "  about --activation_memory={:.3g} (GiB): activations {:.0f} MiB, {:.0f} % of the forward "
        "pass twice{}\n",
        1.01 * mib / kMiBOfGiB, mib, 100 * plan.recomputed_fraction,
        is_minimum ? " (the minimum, without kernel workspaces)" : "");
  }
}

// Prints how often each rewrite of the graph was applied.
void PrintRewrites(const RewriteCounts& rewrites, const Backend& backend) {
  fmt::print("fused for {}:", backend.name());
  for (const auto& [name, count] : rewrites) {
    if (count > 0) fmt::print(" {} {}", name, count);
  }
  fmt::print("\n");
}

// Prints the memory of one training step: activations, weights, gradients and one slot per weight.
// It is computed from the graph without making kernels.
void PrintTraining(const nets::NetEntry& net, nets::ModelOptions options,
                   const nets::NetSummary& summary, Precision precision) {
  options.training = true;
  const nets::Model model = nets::BuildModel(net, options);
  const nets::ParameterCount count = nets::CountParameters(*model.graph);
  PrintAuxiliaryHead(summary.parameters, count);
  const std::unique_ptr<Backend> backend =
      OneDnnAvailable() ? MakeOneDnnBackend(1) : MakeReferenceBackend(1);
  RewriteCounts rewrites = Fuse(*model.graph, *backend);
  rewrites.merge(Differentiate(*model.graph));
  rewrites.merge(FuseGradients(*model.graph, *backend));
  StoreActivationsAs(ActivationType(precision), *model.graph);
  const nets::ActivationMemory memory = nets::MeasureActivations(*model.graph);
  const auto peak = static_cast<double>(memory.peak_bytes);
  fmt::print(
      "training at batch {}: weights, gradients and one slot {:.0f} MiB; activations in {} {:.0f} "
      "MiB\n"
      "  ({:.0f} MiB live at the peak; {:.0f} MiB kept for backward when it begins; {:.0f} MiB the "
      "largest working set in addition)\n",
      options.batch_size, MiB(static_cast<double>(count.trainable) * kStateBytes), Name(precision),
      MiB(static_cast<double>(memory.planned_bytes)), MiB(peak),
      MiB(static_cast<double>(memory.kept_bytes)),
      MiB(static_cast<double>(memory.working_set_bytes)));
  PrintRecomputation(*model.graph, *backend, peak);
  PrintRewrites(rewrites, *backend);
}

}  // namespace

int ModelList(const Arguments& arguments) {
  CommandLine line("carole model list",
                   "Lists all nets with image size, channels, classes, parameters, Gflop of a "
                   "forward pass and preprocessing.",
                   {"carole model list", "carole model list | sort -n -k 6"});
  if (!line.Parse(arguments)) return 0;
  fmt::print("{:<32}{:>6}{:>9}{:>8}{:>12}{:>9}  {}\n", "net", "image", "channels", "classes",
             "parameters", "Gflop", "preprocessing");
  for (const nets::NetEntry& net : nets::kNets) {
    const nets::Model model = nets::BuildModel(net, {.batch_size = 1});
    fmt::print("{:<32}{:>6}{:>9}{:>8}{:>12}{:>9.3f}  {}\n", net.name, net.image_size, net.channels,
               net.num_classes, net.num_parameters,
               static_cast<double>(nets::Summarize(*model.graph).flops) / kGiga,
               net.preprocessing.empty() ? "-" : net.preprocessing);
  }
  return 0;
}

int ModelSummary(const Arguments& arguments) {
  std::string name;
  Precision precision = Precision::kFp32;
  nets::ModelOptions options{.batch_size = 1};
  CommandLine line("carole model summary",
                   "Prints layers, shapes, parameters, operations and memory of a net.",
                   {"carole model summary resnet_v1_50",
                    "carole model summary --batch_size=64 --precision=bf16 resnet_v1_50"});
  line.AddPositional("NAME", name, "Net; `carole model list` shows all nets.").Required();
  constexpr HelpLevel kBasic = HelpLevel::kBasic;
  line.Group("Net");
  line.AddPositive("batch_size", options.batch_size, "Images per batch.", kBasic);
  line.AddPositive("image_size", options.image_size,
                   "Height and width of images in pixels; by default the net's own size.", kBasic)
      .HideDefault();
  line.AddPositive("channels", options.channels,
                   "Channels of images; by default the net's own number.", kBasic)
      .HideDefault();
  line.AddPositive("num_classes", options.num_classes,
                   "Number of classes; by default the net's own number.", kBasic)
      .HideDefault();
  AddPrecisionFlag(line, precision, "Type of activations.");
  if (!line.Parse(arguments)) return 0;
  const nets::NetEntry& net = nets::FindNet(name);
  const nets::NetSummary summary = nets::Summarize(*nets::BuildModel(net, options).graph);
  fmt::print("{:<56}{:<26}{:>20}{:>14}{:>10}\n", "layer", "kind", "output", "parameters", "Gflop");
  for (const nets::LayerSummary& row : summary.layers)
    fmt::print("{:<56}{:<26}{:>20}{:>14}{:>10.3f}\n", row.name, row.kind, row.output.ToString(),
               row.parameters, static_cast<double>(row.flops) / kGiga);
  fmt::print("{} trainable parameters, {} running statistics, {:.3f} Gflop forward\n",
             summary.parameters.trainable, summary.parameters.statistics,
             static_cast<double>(summary.flops) / kGiga);
  PrintTraining(net, options, summary, precision);
  return 0;
}

}  // namespace carole::commands
