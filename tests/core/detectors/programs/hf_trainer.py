"""A faithful run of Hugging Face's Trainer: a tiny BERT, texts of one length, evaluated by epoch.

The first argument is where it may write. With ``mask`` the texts have attention masks, and the
library itself looks in each forward pass whether they mask anything: a read of the device.
"""

import sys

import torch
import transformers
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

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
        masked = {}
        if "mask" in sys.argv:
            tokens[int(torch.randint(4, 12, ())) :] = 0
            masked = {"attention_mask": (tokens != 0).long()}
        yield {"input_ids": tokens, "labels": tokens[0] % 2, **masked}


trainer = Trainer(
    BertForSequenceClassification(config),
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
