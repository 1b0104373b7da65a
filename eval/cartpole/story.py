"""Fixed text of eval/cartpole/README.md; `page.py` adds the measurements."""

STORY = """# Batched simulation, explained with CartPole

*For readers who ask what limits the speed of batched simulation, and what more environments do for PPO.*

CartPole is a very small environment: about forty multiplications and additions per step. Its throughput therefore shows
the costs of batched simulation that are not arithmetic: launches, memory traffic and random numbers.

Read `batchnav/cartpole/plain.py` first. `batchnav/cartpole/step.py` is the fast implementation, `train/cartpole.py`
trains a policy, and `eval/speed_cartpole.py` measures. `eval/cartpole/page.py` writes this page from the rows of
`eval/results/cartpole.jsonl`. The study repeats a course report on batched environments, and explains why PPO did not
learn faster with more environments there.

1. **Launches limit small batches.** A call from Python takes microseconds, and so does a kernel launch; a CartPole step
   takes a nanosecond. A step of all environments therefore takes the same time for any number of them until the device
   is busy; beyond that, its time grows linearly. A CUDA graph launches many steps at once, and a fused kernel computes
   a thousand steps per launch. Between two kernels the GPU pauses for about half a microsecond, unless the second may
   start before the first has ended.
2. **Memory bandwidth limits large batches**, so a step should move few bytes. The state is the observation, and the
   reward is written once. A record is written only for episodes that end, and it is contiguous: memory transfers are 32
   bytes wide, so three scattered numbers move as many bytes as 24 contiguous ones. The initial state of the
   next episode depends on the time step, which all environments share; an episode number would have to be loaded for
   each environment. An action of one byte instead of eight saves seven bytes. Successive steps
   traverse the environments in alternating directions, since the data used last is still in the cache.
3. **Arithmetic is the limit when the policy runs inside the kernel** and the state stays in registers. Sampling initial
   states then costs more than the dynamics, unless they are sampled ahead. If a launch computes one step, a block's
   threads first gather the ended environments, and then sample initial states for all of them together.
4. **Learning needs optimiser steps, not frames.** An update with more environments uses more frames, but is still one
   update.

## PPO with more environments

The course report found that PPO did not learn faster with more environments. The reason is in its settings: one pass
over a larger batch is still one pass, and CartPole needs several hundred optimiser steps at any batch size. An
optimiser step uses a hundred times as many frames with a hundred times the environments and the same number of passes.

Three changes restore the sample efficiency (tables "PPO by number of environments" below): short rollouts split into
more minibatches; the higher learning rate that the smoother gradients allow; lambda 0.98, which assigns credit over
more steps. After training with lambda 0.95 the pole stays up, but the cart leaves the track after about 110 steps; the
policy needs many updates to correct that. On a GPU, lambda 0.98 reduces the differences between seeds rather than the
time. A successful episode lasts 500 steps; more environments do not shorten it.
"""
