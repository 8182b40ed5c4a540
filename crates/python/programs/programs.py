"""The programs of others that compare.py runs: where each is, what data it needs, and its commands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import data


@dataclass
class Program:
    """A program: ``commands`` are files of its folder with their arguments, and ``data`` makes what they read."""

    name: str
    folder: str
    commands: Sequence[str]
    data: Callable[[Path], None] = data.nothing
    #: It takes longer than the short form has time for.
    slow: bool = False
    #: Seconds after which it is stopped, since it ends by itself only after long, and the number of its lines that
    #: are compared: later, one rounded number has changed all that follows.
    stopped: tuple[float, int] | None = None
    #: A part of the error with which it must end.
    refused: str = ""
    #: Why it prints other numbers.
    differs: str = ""
    #: Its words are compared as well.
    texts: bool = False


#: Programs of our own, on libraries of others.
LIBRARIES = Path(__file__).resolve().parent / "libraries"
NANO = (
    "--device=cpu --eval_iters=2 --log_interval=1 --block_size=64 --batch_size=8 --n_layer=2 --n_head=2 --n_embd=64 "
    "--lr_decay_iters=60 --eval_interval=20 --dropout=0.0 --warmup_iters=5 --always_save_checkpoint=True"
)
WORDS = "--emsize 64 --nhid 64 --epochs 1 --log-interval 5 --dropout 0 --bptt 20"


def _page(name, make=data.nothing, **options):
    """A page of "Dive into Deep Learning", of which every cell runs."""
    return Program(f"d2l: {name}", "d2l", [f"chapter_{name}.md"], make, slow=True, **options)


def _tutorial(path, make=data.nothing, **options):
    return Program(f"tutorials: {Path(path).name}", "tutorials", [f"{path}.py"], make, slow=True, **options)


PROGRAMS = [
    Program("micrograd: its tests", "micrograd", commands=["-m pytest -q -p no:cacheprovider test/test_engine.py"]),
    Program("minGPT: adder", "minGPT", commands=[
        "projects/adder/adder.py --trainer.max_iters=60 --trainer.num_workers=0"
    ]),
    Program("minGPT: chargpt", "minGPT", data=data.of_chargpt, commands=[
        "projects/chargpt/chargpt.py --trainer.max_iters=30 --trainer.num_workers=0 --model.model_type=gpt-nano "
        "--trainer.batch_size=8 --data.block_size=64"
    ]),
    Program("nanoGPT: train", "nanoGPT", data=data.of_characters, commands=[
        "data/shakespeare_char/prepare.py",
        f"train.py config/train_shakespeare_char.py {NANO} --compile=False --max_iters=40",
        f"train.py config/train_shakespeare_char.py {NANO} --compile=False --max_iters=60 --init_from=resume",
    ]),
    Program("nanoGPT: train and sample", "nanoGPT", data=data.of_characters, commands=[
        "data/shakespeare_char/prepare.py",
        f"train.py config/train_shakespeare_char.py {NANO} --compile=False --max_iters=40",
        "sample.py --out_dir=out-shakespeare-char --device=cpu --num_samples=2 --max_new_tokens=100 --compile=False",
    ], slow=True, texts=True),
    Program("nanoGPT: train with compile", "nanoGPT", data=data.of_characters, commands=[
        "data/shakespeare_char/prepare.py",
        f"train.py config/train_shakespeare_char.py {NANO} --compile=True --max_iters=40",
    ]),
    Program("examples: mnist", "examples/mnist", data=data.of_mnist, commands=["main.py --epochs 1 --no-accel"]),
    Program("examples: mnist_rnn", "examples/mnist_rnn", data=data.of_mnist, commands=["main.py --epochs 1"]),
    Program("examples: mnist_forward_forward", "examples/mnist_forward_forward", data=data.of_mnist, commands=[
        "main.py --epochs 30 --no_accel --train_size 1000 --test_size 500 --log-interval 5"
    ], slow=True),
    Program("examples: mnist_hogwild", "examples/mnist_hogwild", data=data.of_mnist, commands=[
        "main.py --epochs 1 --num-processes 2"
    ], refused="not shared between processes"),
    Program("examples: vae", "examples/vae", data=data.of_mnist, commands=["main.py --epochs 1 --no-accel"]),
    Program("examples: siamese_network", "examples/siamese_network", data=data.of_mnist, commands=[
        "main.py --epochs 1 --no-accel --dry-run --lr 0.01"
    ], slow=True),
    Program("examples: dcgan", "examples/dcgan", commands=[
        "main.py --dataset fake --workers 0 --niter 1 --dry-run --batchSize 16 --ngf 16 --ndf 16 --manualSeed 1"
    ]),
    Program("examples: regression", "examples/regression", commands=["main.py"]),
    Program("examples: time_sequence_prediction", "examples/time_sequence_prediction", commands=[
        "generate_sine_wave.py", "train.py --steps 1"
    ], slow=True),
    Program("examples: actor_critic", "examples/reinforcement_learning", commands=[
        "actor_critic.py --log-interval 1"
    ], stopped=(25, 150), slow=True),
    Program("examples: reinforce", "examples/reinforcement_learning", commands=[
        "reinforce.py --log-interval 1"
    ], stopped=(25, 75), slow=True),
    Program("examples: word_language_model, LSTM", "examples/word_language_model", data=data.of_words, commands=[
        f"main.py --model LSTM {WORDS}"
    ]),
    Program("examples: word_language_model, GRU", "examples/word_language_model", data=data.of_words, commands=[
        f"main.py --model GRU --lr 2 {WORDS}"
    ]),
    Program("examples: word_language_model, RNN_TANH", "examples/word_language_model", data=data.of_words, commands=[
        f"main.py --model RNN_TANH --lr 2 {WORDS}"
    ]),
    Program("examples: word_language_model, Transformer", "examples/word_language_model", data=data.of_words, commands=[
        f"main.py --model Transformer --lr 0.5 {WORDS}"
    ]),
    Program("examples: gcn", "examples/gcn", data=data.of_cora, commands=["main.py --epochs 60 --no-accel"]),
    Program("examples: gat", "examples/gat", data=data.of_cora, commands=[
        "main.py --epochs 20 --no-accel"
    ], slow=True),
    Program("examples: super_resolution", "examples/super_resolution", data=data.of_pictures, commands=[
        "main.py --upscale_factor 3 --batchSize 4 --testBatchSize 2 --nEpochs 2 --lr 0.001 --threads 0"
    ]),
    *(_page(name) for name in (
        "builders-guide/custom-layer", "builders-guide/init-param", "builders-guide/lazy-init",
        "builders-guide/model-construction", "builders-guide/parameters", "builders-guide/read-write",
        "linear-regression/linear-regression-concise", "linear-regression/linear-regression-scratch",
        "linear-regression/weight-decay", "convolutional-neural-networks/channels",
        "convolutional-neural-networks/conv-layer", "convolutional-neural-networks/padding-and-strides",
        "convolutional-neural-networks/pooling", "recurrent-neural-networks/sequence",
        "recurrent-modern/bi-rnn", "recurrent-modern/encoder-decoder",
        "attention-mechanisms-and-transformers/attention-pooling",
        "attention-mechanisms-and-transformers/attention-scoring-functions",
        "attention-mechanisms-and-transformers/multihead-attention",
    )),
    _page("linear-classification/softmax-regression-scratch", data.of_clothes),
    _page("multilayer-perceptrons/mlp-implementation", data.of_clothes),
    _page("multilayer-perceptrons/dropout", data.of_clothes),
    _page("convolutional-neural-networks/lenet", data.of_clothes),
    _page("convolutional-modern/batch-norm", data.of_few_clothes),
    _page("recurrent-neural-networks/rnn-concise", data.of_book, stopped=(300, 50)),
    _page("recurrent-modern/machine-translation-and-dataset", data.of_book),
    *(_tutorial(path) for path in (
        "beginner_source/examples_tensor/polynomial_tensor", "beginner_source/examples_autograd/polynomial_autograd",
        "beginner_source/examples_autograd/polynomial_custom_function", "beginner_source/examples_nn/polynomial_nn",
        "beginner_source/examples_nn/polynomial_module", "beginner_source/examples_nn/dynamic_net",
        "beginner_source/nlp/pytorch_tutorial", "beginner_source/nlp/deep_learning_tutorial",
        "beginner_source/nlp/word_embeddings_tutorial", "beginner_source/nlp/sequence_models_tutorial",
        "beginner_source/introyt/modelsyt_tutorial", "beginner_source/blitz/neural_networks_tutorial",
        "beginner_source/basics/autogradqs_tutorial", "beginner_source/basics/buildmodel_tutorial",
        "intermediate_source/pruning_tutorial", "intermediate_source/parametrizations",
        "intermediate_source/neural_tangent_kernels", "recipes_source/recipes/defining_a_neural_network",
    )),
    _tutorial("beginner_source/basics/quickstart_tutorial", data.of_clothes),
    *(_tutorial(path, differs="an array of numpy that changes does not change its tensor") for path in (
        "beginner_source/blitz/tensor_tutorial", "beginner_source/basics/tensorqs_tutorial",
    )),
    *(Program(f"libraries: {name}", str(LIBRARIES), [f"{name}.py"], slow=True) for name in (
        "models_of_transformers", "estimators_of_scikit_learn", "functions_of_scipy",
    )),
]
