#!/usr/bin/env python3
"""Compares the speed of carole's input with tf.data: the same shards, the same cores, interleaved.

    ./run bench-input --photos DIR --threads 1          JPEGs of DIR, packed into shards in a temporary folder
    ./run bench-input --dataset_dir DIR --threads 2     existing shards in ImageNet's format

Each measurement is a separate process on the same cores, in the order A B A B ...; the table shows medians over the
rounds. Both programs choose random crops with sample_distorted_bounding_box and decode only the crop (tf.data with
decode_and_crop_jpeg). Then they resize it to 224x224, flip it and scale it to [-1, 1]. In addition, carole distorts
brightness and saturation. The read rate is for whole records including their checksums. The rate of libjpeg-turbo is
for whole images, measured by carole in the same process.
"""

import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHARDS = 4
SIZE = 224


def pack(photos, folder, copies):
    """Writes the JPEGs of a folder, `copies` times, as SHARDS shards in ImageNet's format."""
    import tensorflow as tf

    files = sorted(path for path in glob.glob(os.path.join(photos, "*")) if path.lower().endswith((".jpg", ".jpeg")))
    if not files:
        sys.exit(f"[bench] --photos={photos}: got no files with the extension .jpg or .jpeg, want at least one")
    writers = [tf.io.TFRecordWriter(f"{folder}/train-{i:05d}-of-{SHARDS:05d}") for i in range(SHARDS)]
    for number, path in enumerate(files * copies):
        with open(path, "rb") as file:
            encoded = file.read()
        feature = {
            "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded])),
            "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[1 + number % 1000])),
        }
        example = tf.train.Example(features=tf.train.Features(feature=feature))
        writers[number % SHARDS].write(example.SerializeToString())
    for writer in writers:
        writer.close()


def tf_images(tf, dataset, threads, seconds):
    """Returns the images per second, and per second of CPU time, of tf.data with its best settings.

    These are a private thread pool, and no autotuning.
    """

    def load(record):
        fields = {
            "image/encoded": tf.io.FixedLenFeature([], tf.string),
            "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        }
        parsed = tf.io.parse_single_example(record, fields)
        encoded = parsed["image/encoded"]
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(encoded),
            tf.zeros([1, 0, 4]),
            min_object_covered=0.1,
            aspect_ratio_range=(0.75, 1.33),
            area_range=(0.05, 1.0),
            max_attempts=100,
            use_image_if_no_bounding_boxes=True,
        )
        crop = tf.stack([begin[0], begin[1], size[0], size[1]])
        image = tf.image.decode_and_crop_jpeg(encoded, crop, channels=3)
        image = tf.compat.v1.image.resize_bilinear(image[tf.newaxis], [SIZE, SIZE])[0]
        image = tf.image.random_flip_left_right(image)
        return image / 127.5 - 1.0, parsed["image/class/label"]

    images = dataset.repeat().map(load, num_parallel_calls=threads, deterministic=False).batch(32).prefetch(2)
    batches = iter(images)
    for _ in range(4):
        next(batches)
    count, start, cpu_start = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - start < seconds:
        next(batches)
        count += 32
    return count / (time.perf_counter() - start), count / (time.process_time() - cpu_start)


def tf_worker(folder, threads, seconds):
    """Measures tf.data in this process and prints one JSON object."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    options.autotune.enabled = False
    shards = sorted(glob.glob(os.path.join(folder, "train-*")))
    dataset = tf.data.TFRecordDataset(shards, buffer_size=8 << 20, num_parallel_reads=threads).with_options(options)
    bytes_read = sum(os.path.getsize(shard) for shard in shards)
    wall, cpu = [], []
    for _ in range(3):
        start, cpu_start = time.perf_counter(), time.process_time()
        for _ in dataset.batch(32):
            pass
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - cpu_start)
    images, images_of_cpu = tf_images(tf, dataset, threads, seconds)
    print(json.dumps({
        "images_per_second": images,
        "images_per_cpu_second": images_of_cpu,
        "read_with_crc_gb_per_second": bytes_read / statistics.median(wall) * 1e-9,
        "read_with_crc_gb_per_cpu_second": bytes_read / statistics.median(cpu) * 1e-9,
    }))  # fmt: skip


def carole_command(flags):
    return [flags.carole, "bench", "input", "--dataset_name=imagenet", f"--dataset_dir={flags.dataset_dir}",
            "--model_name=inception_v1", f"--threads={flags.threads}", "--rounds=3", f"--steps={flags.steps}",
            "--json"]  # fmt: skip


def measure(command, cores):
    pinned = ["taskset", "-c", ",".join(map(str, cores)), *command]
    done = subprocess.run(pinned, capture_output=True, text=True, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})
    if done.returncode != 0:
        sys.exit(f"[bench] {' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def report(flags):
    cores = sorted(os.sched_getaffinity(0))[: flags.threads]
    if len(cores) < flags.threads:
        sys.exit(f"[bench] --threads: got {flags.threads}, want at most {len(cores)}, the cores this process may use")
    rows = {"carole": [], "tf.data": []}
    me = [sys.executable, os.path.abspath(__file__), f"--dataset_dir={flags.dataset_dir}",
          f"--threads={flags.threads}", f"--seconds={flags.seconds}", "--worker"]  # fmt: skip
    for _ in range(flags.rounds):
        rows["carole"].append(measure(carole_command(flags), cores))
        rows["tf.data"].append(measure(me, cores))
    print(f"{flags.threads} threads, {flags.rounds} rounds, medians; libjpeg: decoding of whole images only")
    for clock in ("second", "cpu_second"):  # rates per CPU second are steadier if other programs run, too
        images = {name: statistics.median(row[f"images_per_{clock}"] for row in runs) for name, runs in rows.items()}
        read = {name: statistics.median(row[f"read_with_crc_gb_per_{clock}"] for row in runs)
                for name, runs in rows.items()}  # fmt: skip
        full = statistics.median(row[f"libjpeg_full_decode_images_per_{clock}"] for row in rows["carole"])
        for name in rows:
            print(f"{name:<10}{images[name]:10.1f} images/{clock}{read[name]:10.2f} GB/{clock} read")
        print(f"{'libjpeg':<10}{full:10.1f} images/{clock}")
        print(f"carole: {images['carole'] / images['tf.data']:.2f} times tf.data, {images['carole'] / full:.2f} "
              f"times libjpeg; reading {read['carole'] / read['tf.data']:.2f} times tf.data")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", help="folder with JPEGs")
    parser.add_argument("--copies", type=int, default=2, help="copies of each photo")
    parser.add_argument("--dataset_dir", help="folder with train-* shards")
    parser.add_argument("--carole", default=os.path.join(ROOT, "build", "carole"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30, help="batches of 32 images in each measurement of carole")
    parser.add_argument("--seconds", type=float, default=4, help="length of a measurement of tf.data, in seconds")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.worker:
        tf_worker(flags.dataset_dir, flags.threads, flags.seconds)
    elif flags.photos:
        with tempfile.TemporaryDirectory() as folder:
            pack(flags.photos, folder, flags.copies)
            flags.dataset_dir = folder
            report(flags)
    elif flags.dataset_dir:
        report(flags)
    else:
        parser.error("no input: want --photos or --dataset_dir")


if __name__ == "__main__":
    main()
