#include "src/commands/cli/foreign_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/commands/cli/flag.h"

namespace carole::commands {
namespace {

struct ForeignFlags {
  std::string_view names;      // separated by blanks
  std::string_view ours;       // flags of this program with this meaning; a command may lack some
  std::string_view note = "";  // how the value differs
  std::string_view instead = "see --helpfull";  // for a command that lacks these flags
};

constexpr std::string_view kClasses =
    "labels.txt in --dataset_dir lists the classes; `carole dataset build` writes it";
constexpr std::string_view kRanks =
    "mpirun -np N or srun starts N ranks, which find each other by themselves";

constexpr ForeignFlags kForeignFlags[] = {
    // files
    {"model_dir checkpoint_dir ckpt_dir save_dir save_path out_dir output output_path job_dir "
     "run_dir exp_dir result_dir results_dir workdir default_root_dir",
     "train_dir checkpoint_path"},
    {"resume resume_from resume_from_checkpoint continue_training restore", "train_dir",
     "whose newest checkpoint a run resumes from"},
    {"pretrained pretrained_path pretrained_model pretrained_weights weights init_checkpoint "
     "initial_checkpoint fine_tune_checkpoint finetune warm_start_from load_path load ckpt "
     "ckpt_path checkpoint model_path restore_path pretrained_model_checkpoint_path",
     "checkpoint_path"},
    {"train_data training_data train_path train_dir_path train_data_dir train_files train_file "
     "training_file_pattern data data_path data_root datadir dataset_path dataset_root root "
     "input_dir input_data input_path imagenet_dir tfrecord_dir tfrecords image_dir images",
     "dataset_dir raw_dir"},
    {"logdir tensorboard tensorboard_dir tb_dir summary_dir summaries_dir", "log_dir eval_dir"},
    {"dataset data_name data_set", "dataset_name"},
    {"split subset train_split", "dataset_split_name"},
    {"val_data validation_data valid_data test_data eval_data val_dir val_path test_dir "
     "val_data_dir validation_dir",
     "eval_split_name dataset_split_name", "a split of --dataset_dir"},
    {"val_split valid_split validation_split eval_split test_split",
     "eval_split_name dataset_split_name validation_fraction"},
    {"num_classes n_classes nb_classes num_labels number_of_classes class_num", "num_classes", "",
     kClasses},
    {"classes class_names labels_file label_map label_map_path labels", "", "", kClasses},
    // length
    {"train_steps max_steps num_steps num_train_steps training_steps total_steps n_steps steps "
     "iterations num_iterations num_iters max_iter max_iters max_iterations niter "
     "how_many_training_steps",
     "max_number_of_steps steps"},
    {"epochs num_epochs n_epochs nb_epoch nb_epochs nepochs max_epochs max_epoch num_train_epochs "
     "training_epochs number_of_epochs epoch",
     "train_epochs"},
    {"time_limit max_train_time", "max_time"},
    // batches and net
    {"bs b batch batchsize mini_batch_size minibatch_size minibatch train_bs "
     "per_device_train_batch_size per_gpu_batch_size local_batch_size batch_size_per_gpu "
     "batch_size_per_device",
     "batch_size train_batch_size"},
    {"global_batch_size total_batch_size", "batch_size", "which counts the images of one rank"},
    {"val_batch_size valid_batch_size validation_batch_size test_batch_size "
     "per_device_eval_batch_size vb",
     "eval_batch_size batch_size"},
    {"arch architecture model net network a backbone net_name network_name model_type",
     "model_name"},
    {"dropout dropout_rate drop_rate drop dropout_keep_prob keep_prob", "", "",
     "each net has its own dropout"},
    {"image_size img_size imgsz input_size crop_size train_crop_size resolution res crop size "
     "val_crop_size",
     "train_image_size eval_image_size image_size"},
    {"freeze freeze_layers trainable_layers train_layers", "trainable_scopes",
     "which names what is trained"},
    // optimization
    {"lr base_lr base_learning_rate initial_lr init_lr initial_learning_rate max_lr learning_rates "
     "eta",
     "learning_rate"},
    {"min_lr final_lr end_lr lr_min eta_min", "end_learning_rate"},
    {"sched scheduler lr_schedule lr_scheduler lr_scheduler_type lr_policy lr_decay_type "
     "learning_rate_schedule decay_type",
     "learning_rate_decay_type"},
    {"lr_decay lr_decay_rate lr_decay_factor decay_rate learning_rate_decay gamma lr_gamma",
     "learning_rate_decay_factor"},
    {"decay_epochs lr_decay_epochs lr_step_size step_size decay_steps lr_decay_steps",
     "num_epochs_per_decay", "which counts epochs"},
    {"milestones lr_milestones decay_milestones lr_steps boundaries lr_boundaries",
     "learning_rate_boundaries", "which counts epochs"},
    {"warmup warmup_iters lr_warmup_epochs warmup_steps num_warmup_steps warmup_ratio",
     "warmup_epochs", "which counts epochs"},
    {"opt optim optimiser optimizer_name", "optimizer"},
    {"wd weightdecay l2 l2_reg l2_regularization weight_decay_rate reg", "weight_decay"},
    {"mom sgd_momentum", "momentum"},
    {"eps epsilon opt_eps adam_epsilon adam_eps", "opt_epsilon"},
    {"beta1 beta_1", "adam_beta1"},
    {"beta2 beta_2", "adam_beta2"},
    {"bn_decay batchnorm_decay bn_moving_average_decay", "batch_norm_decay"},
    {"bn_momentum batch_norm_momentum norm_momentum", "batch_norm_decay",
     "which is 1 minus PyTorch's momentum"},
    {"smoothing label_smooth ls", "label_smoothing"},
    {"ema ema_decay model_ema model_ema_decay ema_momentum", "moving_average_decay"},
    {"clip_grad grad_clip clip_norm clipnorm clip_grad_norm gradient_clip_val max_grad_norm "
     "gradient_clip_norm",
     "clip_gradient_norm"},
    {"grad_accum_steps gradient_accumulation_steps accum_steps accumulate_grad_batches accum_iter "
     "iter_size update_freq gradient_accumulation",
     "accumulation_steps"},
    {"reprob", "random_erasing_prob"},
    {"random_seed manual_seed manualSeed rng_seed rand_seed", "seed"},
    // evaluation, checkpoints and logs
    {"eval_steps steps_between_evals eval_interval val_interval evaluation_steps validation_steps",
     "eval_every max_num_batches"},
    {"epochs_between_evals val_freq validation_freq check_val_every_n_epoch eval_freq",
     "epochs_per_eval"},
    {"save_checkpoints_secs save_model_secs checkpoint_secs", "save_interval_secs"},
    {"save_checkpoints_steps save_checkpoint_steps checkpoint_every checkpoint_interval "
     "checkpoint_freq save_freq save_every save_steps save_interval save_period",
     "save_interval_secs", "which counts seconds"},
    {"keep_checkpoint_max max_to_keep checkpoint_hist save_total_limit checkpoints_to_keep",
     "keep_checkpoints"},
    {"save_best save_best_only load_best_model_at_end", "keep_best"},
    {"early_stopping early_stop patience early_stopping_patience", "keep_best",
     "which keeps the checkpoint of the best evaluation"},
    {"export_dir export saved_model saved_model_dir output_graph", "", "",
     "`carole checkpoint convert` writes other formats"},
    {"save_summary_steps summary_steps summary_every summary_interval", "save_summaries_steps"},
    {"log_steps log_interval log_every log_freq log_step_count_steps logging_steps print_freq "
     "print_every display_step display",
     "log_every_n_steps"},
    {"profile profiler use_profiler profile_steps timeline", "trace"},
    // machine
    {"workers num_workers j nw n_workers num_data_workers num_parallel_calls data_workers "
     "preprocessing_threads datasets_num_private_threads loaders",
     "num_preprocessing_threads"},
    {"num_threads n_threads nthreads intra_op_parallelism_threads", "threads"},
    {"dtype amp use_amp fp16 use_fp16 bf16 half mixed_precision fp16_run", "precision"},
    {"device accelerator cuda no_cuda use_gpu gpu cpu", "backend"},
    {"gpus ngpus n_gpus devices nproc_per_node num_processes nprocs world_size np num_ranks",
     "ranks", "which starts this many on this machine", kRanks},
    {"rank local_rank nodes num_nodes node_rank dist_url dist_backend master_addr master_port "
     "multiprocessing_distributed "
     "distributed distribution_strategy worker_hosts ps_hosts job_name task_index",
     "", "", kRanks},
    {"sync_bn syncbn", "sync_batch_norm"},
    {"grad_checkpointing gradient_checkpointing", "activation_memory"},
    {"bucket_cap_mb fusion_threshold_mb", "bucket_mb"},
    // of carole 0.1.0
    {"jpeg_decoder", "", "", "leave it out: the cores decode all JPEGs"},
};

}  // namespace

std::string AdviseOnForeignFlag(std::string_view name,
                                const std::function<bool(const std::string& flag)>& has_flag) {
  for (const ForeignFlags& row : kForeignFlags) {
    const std::vector<std::string> names = SplitText(row.names, ' ');
    if (std::ranges::find(names, name) == names.end()) continue;
    for (const std::string& flag : SplitText(row.ours, ' ')) {
      if (has_flag(flag))
        return fmt::format("did you mean --{}{}{}?", flag, row.note.empty() ? "" : ", ", row.note);
    }
    return std::string(row.instead);
  }
  return "";
}

}  // namespace carole::commands
