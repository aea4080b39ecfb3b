"""Models of texts: what they compute, and that padding counts for nothing."""

import pytest
import torch

from mnemos.common.rng import generator
from mnemos.common.shapes import TokenShape
from mnemos.errors import ConfigError
from mnemos.models.mlp import MLP
from mnemos.models.model import build_model, models
from mnemos.models.text import Text, TextCNN

SHAPE = TokenShape((5,), ids=7)


def built(part, shape=SHAPE):
    return build_model(part, shape, 3, generator(0, "model")).eval()


def test_the_mean_of_the_words():
    """Of words 2 and 4 with the vectors (1, 0) and (3, 2), the mean is (2, 1); of no words, 0."""
    model = built(Text(width=2))
    with torch.no_grad():
        model.body[0].words.embedding.weight[[2, 4]] = torch.tensor([[1.0, 0.0], [3.0, 2.0]])
        features = model.features(torch.tensor([[2, 4, 0, 0, 0], [0, 0, 0, 0, 0]], dtype=torch.int32))
    assert features.tolist() == [[2, 1], [0, 0]]


@pytest.mark.parametrize(
    "part", [Text(hidden=(4,), dropout=0.5), TextCNN(filters=4)], ids=["text", "text-cnn"]
)
def test_padding_counts_for_nothing(part):
    text = torch.tensor([[3, 2, 6, 0, 0]], dtype=torch.int32)
    longer = torch.cat([text, torch.zeros(1, 4, dtype=torch.int32)], 1)
    model = built(part)
    logits = model(text)
    assert torch.allclose(model(longer), logits)
    with torch.no_grad():
        model.get_parameter("body.0.words.embedding.weight")[0] = 100.0
    assert torch.equal(model(text), logits)
    assert torch.allclose(model(longer), logits)
    model(text).sum().backward()
    assert not model.get_parameter("body.0.words.embedding.weight").grad[0].any()


def test_filters_find_a_phrase_wherever_it_is():
    """One filter of two words, with the weight 1 for word 2 and then word 3: 2 where both are, else less."""
    model = built(TextCNN(width=2, filters=1, sizes=(2,)))
    with torch.no_grad():
        words = model.body[0].words.embedding.weight
        words.zero_()
        words[2, 0] = words[3, 1] = 1.0
        layer = model.body[0].filters[0]
        layer.weight.copy_(torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]))
        layer.bias.zero_()
        rows = [[2, 3, 4, 4, 4], [4, 4, 4, 2, 3], [3, 2, 4, 4, 4], [0, 0, 0, 0, 0]]
        assert model.features(torch.tensor(rows, dtype=torch.int32)).tolist() == [[2], [2], [1], [0]]


def test_models_take_their_own_kind_of_samples():
    with pytest.raises(ConfigError, match="name: mlp takes numbers, and the data's samples are texts"):
        built(MLP())
    with pytest.raises(ConfigError, match="name: text takes texts, and the data's samples are numbers"):
        built(Text(), (1, 8, 8))
    with pytest.raises(ConfigError, match="sizes: found 6; texts have 5 words at most"):
        built(TextCNN(sizes=(6,)))


def _own(ids, classes):
    """A user's own model of texts."""
    return torch.nn.Sequential(torch.nn.Embedding(ids, 4), torch.nn.Flatten(), torch.nn.Linear(20, classes))


def test_an_own_model_is_told_the_number_of_ids():
    assert built(models.parse(f"{__name__}:_own"))[0].num_embeddings == 7
