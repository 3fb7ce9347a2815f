"""A faithful run of Hugging Face's Trainer: a tiny BERT, padded to one length, evaluated by epoch.

The first argument is where it may write. With ``sdpa`` the library itself looks at the attention
mask in each forward pass, to see whether it masks anything: a read of the device.
"""

import sys

import torch
import transformers
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

attention = "sdpa" if "sdpa" in sys.argv else "eager"
transformers.set_seed(0)
config = BertConfig(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=16,
)


def samples(count):
    for _ in range(count):
        tokens = torch.randint(1, 40, (12,))
        tokens[int(torch.randint(4, 12, ())) :] = 0
        yield {"input_ids": tokens, "attention_mask": (tokens != 0).long(), "labels": tokens[0] % 2}


trainer = Trainer(
    BertForSequenceClassification._from_config(config, attn_implementation=attention),
    TrainingArguments(
        output_dir=sys.argv[1],
        num_train_epochs=3,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=2,
        optim="adamw_torch",  # the default is a fused one, which XLA does not have
        learning_rate=1e-3,
        warmup_steps=4,
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu="cpu" in sys.argv,
    ),
    train_dataset=list(samples(66)),
    eval_dataset=list(samples(18)),
)
trainer.train()
