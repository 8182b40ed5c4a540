"""Models of the package transformers, from configurations with small sizes: train, save, load and generate."""

import tempfile

import torch
from transformers import (
    BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, T5Config,
    T5ForConditionalGeneration, ViTConfig, ViTForImageClassification,
)

ids = torch.arange(48).reshape(2, 24) % 90 + 1


def trained(name, model, steps=8, **batch):
    """Prints the losses of a few steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"{name}: loss {loss.item():.5f}, norm of the gradient {norm.item():.5f}")
    return model.eval()


small = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
llama = LlamaForCausalLM(LlamaConfig(vocab_size=96, num_key_value_heads=2, max_position_embeddings=64,
                                     bos_token_id=1, eos_token_id=95, pad_token_id=0, **small))
trained("Llama", llama, input_ids=ids, labels=ids)
with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
    llama.save_pretrained(folder)
    again = LlamaForCausalLM.from_pretrained(folder).eval()
    print("Llama, saved and loaded: difference", f"{(again(ids).logits - llama(ids).logits).abs().max().item():.6f}")
    print("Llama, greedy:", again.generate(ids[:, :6], max_new_tokens=12, do_sample=False).float())

gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=96, n_embd=64, n_layer=2, n_head=4, n_positions=64, resid_pdrop=0.0,
                                  embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=95))
trained("GPT-2", gpt2, input_ids=ids, labels=ids)

bert = BertForSequenceClassification(BertConfig(vocab_size=96, max_position_embeddings=64, hidden_dropout_prob=0.0,
                                                attention_probs_dropout_prob=0.0, num_labels=3, **small))
mask = torch.ones_like(ids)
mask[1, 20:] = 0
trained("BERT", bert, input_ids=ids, attention_mask=mask, labels=torch.tensor([0, 2]))

t5 = T5ForConditionalGeneration(T5Config(vocab_size=96, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4,
                                         dropout_rate=0.0, decoder_start_token_id=0))
trained("T5", t5, input_ids=ids, labels=ids.flip(1))

vit = ViTForImageClassification(ViTConfig(image_size=32, patch_size=8, num_labels=4, hidden_dropout_prob=0.0,
                                          attention_probs_dropout_prob=0.0, **small))
trained("ViT", vit, pixel_values=torch.randn(4, 3, 32, 32), labels=torch.tensor([0, 1, 2, 3]))
