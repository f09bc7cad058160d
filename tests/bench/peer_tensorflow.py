"""TensorFlow with its fastest settings for a CPU: tf.function without XLA, fused batch norm and momentum, oneDNN on."""

import tensorflow as tf

import peer_nets as nets


class Net:
    """Holds the variables; those in `kernels` have weight decay. Activations are NHWC, as TensorFlow needs on a CPU."""

    def __init__(self):
        self.trainable, self.kernels, self.moving = [], [], []

    def variable(self, shape, value):
        self.trainable.append(tf.Variable(tf.fill(shape, value) if isinstance(value, float) else value))
        return self.trainable[-1]

    def kernel(self, *shape):
        fan_in = tf.reduce_prod(shape[:-1])
        deviation = tf.sqrt(2.0 / tf.cast(fan_in, tf.float32))
        self.kernels.append(self.variable(shape, tf.random.truncated_normal(shape, stddev=deviation)))
        return self.kernels[-1]

    def conv(self, c_in, c_out, size, stride=1):
        w = self.kernel(size, size, c_in, c_out)
        pad = size // 2
        padding = "SAME" if stride == 1 else [[0, 0], [pad, pad], [pad, pad], [0, 0]]
        return lambda x: tf.nn.conv2d(x, w, stride, padding)

    def conv_bias(self, c_in, c_out, size):
        conv, bias = self.conv(c_in, c_out, size), self.variable([c_out], 0.0)
        return lambda x: tf.nn.bias_add(conv(x), bias)

    def linear(self, c_in, c_out):
        w, bias = self.kernel(c_in, c_out), self.variable([c_out], 0.0)
        return lambda x: tf.nn.bias_add(tf.matmul(x, w), bias)

    def conv_bn(self, c_in, c_out, size, stride=1):
        return self.batch_norm(self.conv(c_in, c_out, size, stride), c_out, nets.BATCH_NORM_EPSILON)

    def batch_norm(self, layer, channels, epsilon=1e-3):
        scale, offset = self.variable([channels], 1.0), self.variable([channels], 0.0)
        mean, variance = tf.Variable(tf.zeros([channels])), tf.Variable(tf.ones([channels]))

        def apply(x):
            y, new_mean, new_variance, *_ = tf.raw_ops.FusedBatchNormV3(
                x=layer(x), scale=scale, offset=offset, mean=mean, variance=variance, epsilon=epsilon,
                exponential_avg_factor=1 - nets.BATCH_NORM_DECAY, data_format="NHWC", is_training=True)  # fmt: skip
            mean.assign(new_mean)
            variance.assign(new_variance)
            return y

        return apply

    def bottleneck(self, c_in, base, stride):
        project = None if c_in == 4 * base else self.conv_bn(c_in, 4 * base, 1, stride)
        conv1 = self.conv_bn(c_in, base, 1)
        conv2 = self.conv_bn(base, base, 3, stride)
        conv3 = self.conv_bn(base, 4 * base, 1)

        def apply(x):
            if project is not None:
                shortcut = project(x)
            else:
                shortcut = x if stride == 1 else tf.nn.max_pool2d(x, 1, stride, "VALID")
            y = tf.nn.relu(conv1(x))
            y = tf.nn.relu(conv2(y))
            return tf.nn.relu(conv3(y) + shortcut)

        return apply


    def depthwise(self, channels, stride):
        w = self.variable([3, 3, channels, 1], tf.random.truncated_normal([3, 3, channels, 1], stddev=0.3))
        return lambda x: tf.nn.depthwise_conv2d(x, w, [1, stride, stride, 1], "SAME")

    def inverted_residual(self, c_in, c_out, stride, factor):
        wide, layers = c_in * factor, []
        if factor > 1:
            layers += [self.batch_norm(self.conv(c_in, wide, 1), wide), tf.nn.relu6]
        layers += [self.batch_norm(self.depthwise(wide, stride), wide), tf.nn.relu6]
        layers += [self.batch_norm(self.conv(wide, c_out, 1), c_out)]
        residual = stride == 1 and c_in == c_out
        return lambda x: chain(layers, x) + x if residual else chain(layers, x)


def chain(layers, x):
    for layer in layers:
        x = layer(x)
    return x


def max_pool(size, padding):
    return lambda x: tf.nn.max_pool2d(x, size, 2, padding)


def mean(x):
    return tf.reduce_mean(x, [1, 2])


def flatten(x):
    return tf.reshape(x, [x.shape[0], -1])


def dropout(rate):
    return lambda x: tf.nn.dropout(x, rate)


def resnet_v1_50(net, classes):
    stem = [net.conv_bn(3, 64, 7, 2), tf.nn.relu, max_pool(3, "SAME")]
    return [*stem, *[net.bottleneck(*unit) for unit in nets.resnet_units()], mean, net.linear(2048, classes)]


def lenet(net, classes):
    return [
        net.conv_bias(1, 32, 5), tf.nn.relu, max_pool(2, "VALID"),
        net.conv_bias(32, 64, 5), tf.nn.relu, max_pool(2, "VALID"), flatten,
        net.linear(7 * 7 * 64, 1024), tf.nn.relu, dropout(1 - nets.LENET_KEEP), net.linear(1024, classes),
    ]  # fmt: skip


def vgg_16(net, classes):
    layers, c_in = [], 3
    for c_out, count in nets.VGG_16_STAGES:
        for _ in range(count):
            layers += [net.conv_bias(c_in, c_out, 3), tf.nn.relu]
            c_in = c_out
        layers.append(max_pool(2, "VALID"))
    return [
        *layers, flatten,
        net.linear(7 * 7 * 512, 4096), tf.nn.relu, dropout(0.5),
        net.linear(4096, 4096), tf.nn.relu, dropout(0.5), net.linear(4096, classes),
    ]  # fmt: skip


def mobilenet_v2(net, classes):
    return [
        net.batch_norm(net.conv(3, 32, 3, 2), 32), tf.nn.relu6,
        *[net.inverted_residual(*unit) for unit in nets.mobilenet_v2_units()],
        net.batch_norm(net.conv(320, 1280, 1), 1280), tf.nn.relu6,
        mean, dropout(0.2), net.linear(1280, classes),
    ]  # fmt: skip


NETS = {"resnet_v1_50": resnet_v1_50, "lenet": lenet, "vgg_16": vgg_16, "mobilenet_v2": mobilenet_v2}


def prepare(name, batch, threads):
    """Returns (version, a function that runs one training step and returns its loss)."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.random.set_seed(1)
    spec = nets.NETS[name]
    net = Net()
    layers = NETS[name](net, spec["classes"])
    nets.check_parameters(name, sum(v.shape.num_elements() for v in net.trainable))
    slots = [tf.Variable(tf.zeros_like(v)) for v in net.trainable]
    decayed = {v.ref() for v in net.kernels}
    inputs = tf.random.normal([batch, spec["size"], spec["size"], spec["channels"]])
    targets = tf.random.uniform([batch], maxval=spec["classes"], dtype=tf.int32)

    @tf.function(jit_compile=False)
    def train(x, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=chain(layers, x))
            loss = tf.reduce_mean(losses)
        for v, slot, dv in zip(net.trainable, slots, tape.gradient(loss, net.trainable)):
            dv = dv + nets.WEIGHT_DECAY * v if v.ref() in decayed else dv
            tf.raw_ops.ResourceApplyMomentum(var=v.handle, accum=slot.handle, lr=nets.LEARNING_RATE, grad=dv,
                                             momentum=nets.MOMENTUM)  # fmt: skip
        return loss

    return tf.__version__, lambda: float(train(inputs, targets))
