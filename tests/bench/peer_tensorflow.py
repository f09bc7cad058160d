"""TensorFlow as fast as it goes on a CPU: tf.function without XLA, fused batch norm, fused momentum, oneDNN on."""

import tensorflow as tf

import peer_nets as nets


class Net:
    """Holds the variables; `kernels` are those with weight decay. Activations are NHWC, which TensorFlow's CPU needs."""

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
        conv = self.conv(c_in, c_out, size, stride)
        scale, offset = self.variable([c_out], 1.0), self.variable([c_out], 0.0)
        mean, variance = tf.Variable(tf.zeros([c_out])), tf.Variable(tf.ones([c_out]))
        self.moving += [mean, variance]

        def apply(x):
            y, new_mean, new_variance, *_ = tf.raw_ops.FusedBatchNormV3(
                x=conv(x), scale=scale, offset=offset, mean=mean, variance=variance,
                epsilon=nets.BATCH_NORM_EPSILON, exponential_avg_factor=1 - nets.BATCH_NORM_DECAY,
                data_format="NHWC", is_training=True)  # fmt: skip
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


def make_net(name, spec):
    net = Net()
    if name == "resnet_v1_50":
        stem = net.conv_bn(spec["channels"], 64, 7, 2)
        units = [net.bottleneck(*unit) for unit in nets.resnet_units()]
        logits = net.linear(2048, spec["classes"])

        def apply(x):
            y = tf.nn.max_pool2d(tf.nn.relu(stem(x)), 3, 2, "SAME")
            for unit in units:
                y = unit(y)
            return logits(tf.reduce_mean(y, [1, 2]))

        return net, apply
    conv1, conv2 = net.conv_bias(spec["channels"], 32, 5), net.conv_bias(32, 64, 5)
    features = 64 * (spec["size"] // 4) ** 2
    hidden, logits = net.linear(features, 1024), net.linear(1024, spec["classes"])

    def apply(x):
        y = tf.nn.max_pool2d(tf.nn.relu(conv1(x)), 2, 2, "VALID")
        y = tf.nn.max_pool2d(tf.nn.relu(conv2(y)), 2, 2, "VALID")
        y = tf.nn.relu(hidden(tf.reshape(y, [-1, features])))
        return logits(tf.nn.dropout(y, 1 - nets.LENET_KEEP))

    return net, apply


def prepare(name, batch, threads):
    """Returns (version, parameter count, a function that runs one training step and returns its loss)."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.random.set_seed(1)
    spec = nets.NETS[name]
    net, apply = make_net(name, spec)
    slots = [tf.Variable(tf.zeros_like(v)) for v in net.trainable]
    decayed = {v.ref() for v in net.kernels}
    inputs = tf.random.normal([batch, spec["size"], spec["size"], spec["channels"]])
    targets = tf.random.uniform([batch], maxval=spec["classes"], dtype=tf.int32)

    @tf.function(jit_compile=False)
    def train(x, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=apply(x))
            loss = tf.reduce_mean(losses)
        for v, slot, dv in zip(net.trainable, slots, tape.gradient(loss, net.trainable)):
            dv = dv + nets.WEIGHT_DECAY * v if v.ref() in decayed else dv
            tf.raw_ops.ResourceApplyMomentum(var=v.handle, accum=slot.handle, lr=nets.LEARNING_RATE, grad=dv,
                                             momentum=nets.MOMENTUM)  # fmt: skip
        return loss

    count = sum(v.shape.num_elements() for v in net.trainable)
    return tf.__version__, count, lambda: float(train(inputs, targets))
