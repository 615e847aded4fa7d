//! What torchvision and timm call the weights that a network of the zoo has: by rules over our own names, for each family one.

use std::collections::BTreeMap;

use memfit::ir::TensorType;

/// Who gave the names of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convention {
    Own,
    Torchvision,
    Timm,
}

impl Convention {
    /// Of several that fit as well, the first one is meant.
    pub const ALL: [Convention; 3] = [Convention::Own, Convention::Torchvision, Convention::Timm];

    /// As messages and events call it.
    pub fn title(self) -> &'static str {
        match self {
            Convention::Own => "memfit",
            Convention::Torchvision => "torchvision",
            Convention::Timm => "timm",
        }
    }
}

/// The weights of a model by our own names.
pub struct Own<'a> {
    /// Of the model.
    pub model: &'a str,
    /// The last layer.
    pub head: &'a str,
    pub types: BTreeMap<&'a str, &'a TensorType>,
    /// Their names as the model has them one after the other.
    pub order: Vec<&'a str>,
}

impl Own<'_> {
    /// What a convention calls a weight; none where it has no such model.
    pub fn name_in(&self, convention: Convention, own: &str) -> Option<String> {
        if convention == Convention::Own {
            return Some(own.into());
        }
        let is_timm = convention == Convention::Timm;
        let Some((layer, leaf)) = own.rsplit_once('/') else { return token_name(self.model, own, is_timm) };
        let layer = self.layer_in(is_timm, layer)?;
        let leaf = match leaf {
            "scale" => "weight",
            "mean" => "running_mean",
            "var" => "running_var",
            other => other,
        };
        let dot = if layer.ends_with('_') { "" } else { "." };
        Some(format!("{layer}{dot}{leaf}"))
    }

    /// What batch norms add to a variance, there and here, where that is not the same.
    pub fn epsilons(&self, convention: Convention) -> Option<[f64; 2]> {
        (convention == Convention::Timm && self.model.starts_with("mobilenet_v3")).then_some([1e-5, 1e-3])
    }

    /// Channels of the image that this dense layer is given as one row: its places lie outermost there, and innermost in PyTorch.
    pub fn flattened(&self, own: &str) -> Option<usize> {
        let is_first = self.model == "vgg16" && own == "classifier/fc1/weight";
        let last = self.types.iter().rfind(|(name, _)| name.starts_with("features/") && name.ends_with("/weight"));
        last.filter(|_| is_first).and_then(|(_, ty)| ty.shape.last().copied())
    }

    fn layer_in(&self, is_timm: bool, layer: &str) -> Option<String> {
        let parts: Vec<&str> = layer.split('/').collect();
        match self.model {
            model if model.starts_with("resnet") => Some(resnet_layer(&parts)),
            "vgg16" => self.vgg_layer(is_timm, &parts),
            model if model.starts_with("mobilenet_v3") => self.mobilenet_layer(is_timm, &parts),
            "efficientnet_b0" => self.efficientnet_layer(is_timm, &parts),
            model if model.starts_with("vit") => vit_layer(is_timm, &parts),
            _ => None,
        }
    }

    fn vgg_layer(&self, is_timm: bool, parts: &[&str]) -> Option<String> {
        Some(match (parts, is_timm) {
            (["features", conv], _) => {
                let (stage, number) = numbers(conv.strip_prefix("conv")?)?;
                let convolutions = |stage: usize| self.count(&format!("features/conv{stage}_"), "/weight");
                // Each convolution has a ReLU behind it, and each stage a pooling.
                let before: usize = (1..stage).map(|stage| 2 * convolutions(stage) + 1).sum();
                format!("features.{}", before + 2 * number.checked_sub(1)?)
            }
            (["classifier", "fc1"], false) => "classifier.0".into(),
            (["classifier", "fc2"], false) => "classifier.3".into(),
            (["classifier", "fc3"], false) => "classifier.6".into(),
            (["classifier", "fc3"], true) => "head.fc".into(),
            (["classifier", layer], true) => format!("pre_logits.{layer}"),
            _ => return None,
        })
    }

    fn mobilenet_layer(&self, is_timm: bool, parts: &[&str]) -> Option<String> {
        let blocks = self.count("features/", "/project/conv/weight");
        let head = if is_timm {
            format!("blocks.{}.0", timm_stages(blocks)?.len())
        } else {
            format!("features.{}", blocks + 1)
        };
        Some(match (parts, is_timm) {
            (["features", "stem", part], _) => stem(is_timm, part)?,
            (["features", "head", "conv"], true) => format!("{head}.conv"),
            (["features", "head", "bn"], true) => format!("{head}.bn1"),
            (["features", "head", part], false) => format!("{head}.{}", conv_bn(part)?),
            (["features", block, ..], true) => {
                let (stage, number) = timm_place(timm_stages(blocks)?, block.parse().ok()?)?;
                format!("blocks.{stage}.{number}.{}", self.timm_part(&parts[..2], &parts[2..])?)
            }
            (["features", block, ..], false) => {
                format!("features.{block}.block.{}", self.torchvision_part(&parts[..2], &parts[2..])?)
            }
            (["classifier", "fc1"], true) => "conv_head".into(),
            (["classifier", "fc2"], true) => "classifier".into(),
            (["classifier", "fc1"], false) => "classifier.0".into(),
            (["classifier", "fc2"], false) => "classifier.3".into(),
            _ => return None,
        })
    }

    fn efficientnet_layer(&self, is_timm: bool, parts: &[&str]) -> Option<String> {
        Some(match (parts, is_timm) {
            (["features", "stem", part], _) => stem(is_timm, part)?,
            (["features", "head", "conv"], true) => "conv_head".into(),
            (["features", "head", "bn"], true) => "bn2".into(),
            (["features", "head", part], false) => format!("features.8.{}", conv_bn(part)?),
            (["features", stage, block, ..], true) => {
                let stage: usize = stage.parse().ok()?;
                format!("blocks.{}.{block}.{}", stage.checked_sub(1)?, self.timm_part(&parts[..3], &parts[3..])?)
            }
            (["features", stage, block, ..], false) => {
                format!("features.{stage}.{block}.block.{}", self.torchvision_part(&parts[..3], &parts[3..])?)
            }
            (["classifier", "fc"], true) => "classifier".into(),
            (["classifier", "fc"], false) => "classifier.1".into(),
            _ => return None,
        })
    }

    /// A part of an inverted residual block, counted through by what the block has.
    fn torchvision_part(&self, block: &[&str], part: &[&str]) -> Option<String> {
        let block = block.join("/");
        let has =
            |part: &str, leaf: &str| usize::from(self.types.contains_key(format!("{block}/{part}/{leaf}").as_str()));
        let expand = has("expand", "conv/weight");
        let excite = has("se", "fc1/weight");
        Some(match *part {
            ["expand", part] => format!("0.{}", conv_bn(part)?),
            ["depthwise", part] => format!("{expand}.{}", conv_bn(part)?),
            ["se", dense] => format!("{}.{dense}", expand + 1),
            ["project", part] => format!("{}.{}", expand + 1 + excite, conv_bn(part)?),
            _ => return None,
        })
    }

    /// The same with timm's names of parts.
    fn timm_part(&self, block: &[&str], part: &[&str]) -> Option<String> {
        let is_expanded = self.types.contains_key(format!("{}/expand/conv/weight", block.join("/")).as_str());
        let name = match (part, is_expanded) {
            (["expand", "conv"], _) | (["project", "conv"], false) => "conv_pw",
            (["expand", "bn"], _) | (["depthwise", "bn"], false) => "bn1",
            (["depthwise", "conv"], _) => "conv_dw",
            (["depthwise", "bn"], true) | (["project", "bn"], false) => "bn2",
            (["se", "fc1"], _) => "se.conv_reduce",
            (["se", "fc2"], _) => "se.conv_expand",
            (["project", "conv"], true) => "conv_pwl",
            (["project", "bn"], true) => "bn3",
            _ => return None,
        };
        Some(name.into())
    }

    fn count(&self, start: &str, end: &str) -> usize {
        self.types.keys().filter(|name| name.starts_with(start) && name.ends_with(end)).count()
    }
}

/// torchvision's, which timm has too.
fn resnet_layer(parts: &[&str]) -> String {
    match *parts {
        [stage, block, "downsample", part] => {
            format!("{stage}.{block}.downsample.{}", if part == "conv" { 0 } else { 1 })
        }
        _ => parts.join("."),
    }
}

fn vit_layer(is_timm: bool, parts: &[&str]) -> Option<String> {
    let block = |number: &str, part: &str| {
        if is_timm {
            format!("blocks.{number}.{part}")
        } else {
            format!("encoder.layers.encoder_layer_{number}.{part}")
        }
    };
    Some(match (parts, is_timm) {
        (["conv_proj"], true) => "patch_embed.proj".into(),
        (["conv_proj"], false) => "conv_proj".into(),
        (["encoder", "ln"], true) => "norm".into(),
        (["encoder", "ln"], false) => "encoder.ln".into(),
        (["head"], true) => "head".into(),
        (["head"], false) => "heads.head".into(),
        (["encoder", "layers", number, "ln1"], _) => block(number, if is_timm { "norm1" } else { "ln_1" }),
        (["encoder", "layers", number, "ln2"], _) => block(number, if is_timm { "norm2" } else { "ln_2" }),
        (["encoder", "layers", number, "attn", "qkv"], _) => {
            block(number, if is_timm { "attn.qkv" } else { "self_attention.in_proj_" })
        }
        (["encoder", "layers", number, "attn", "proj"], _) => {
            block(number, if is_timm { "attn.proj" } else { "self_attention.out_proj" })
        }
        (["encoder", "layers", number, "mlp", "fc1"], _) => block(number, if is_timm { "mlp.fc1" } else { "mlp.0" }),
        (["encoder", "layers", number, "mlp", "fc2"], _) => block(number, if is_timm { "mlp.fc2" } else { "mlp.3" }),
        _ => return None,
    })
}

/// What a vision transformer has beside its layers.
fn token_name(model: &str, own: &str, is_timm: bool) -> Option<String> {
    let name = match (own, is_timm) {
        ("class_token", true) => "cls_token",
        ("class_token", false) => "class_token",
        ("pos_embedding", true) => "pos_embed",
        ("pos_embedding", false) => "encoder.pos_embedding",
        _ => return None,
    };
    model.starts_with("vit").then(|| name.into())
}

fn stem(is_timm: bool, part: &str) -> Option<String> {
    Some(match (part, is_timm) {
        ("conv", true) => "conv_stem".into(),
        ("bn", true) => "bn1".into(),
        (part, _) => format!("features.0.{}", conv_bn(part)?),
    })
}

/// Their numbers in torchvision's triple of convolution, batch norm, activation.
fn conv_bn(part: &str) -> Option<usize> {
    ["conv", "bn"].iter().position(|known| *known == part)
}

/// Blocks of each of timm's stages, for so many of all.
fn timm_stages(blocks: usize) -> Option<&'static [usize]> {
    [&[1, 2, 3, 2, 3][..], &[1, 2, 3, 4, 2, 3]].into_iter().find(|stages| stages.iter().sum::<usize>() == blocks)
}

/// The stage of a block that is counted from 1 through all of them, and its number there.
fn timm_place(stages: &[usize], block: usize) -> Option<(usize, usize)> {
    let mut number = block.checked_sub(1)?;
    for (stage, &blocks) in stages.iter().enumerate() {
        if number < blocks {
            return Some((stage, number));
        }
        number -= blocks;
    }
    None
}

/// "3_2" as two numbers.
fn numbers(text: &str) -> Option<(usize, usize)> {
    let (first, second) = text.split_once('_')?;
    Some((first.parse().ok()?, second.parse().ok()?))
}

/// What torchvision calls a network of the zoo, and timm one with weights; none where they have no such network.
pub fn names_elsewhere(model: &str) -> Option<(&str, &'static str)> {
    Some(match model {
        "resnet18" => (model, "resnet18.tv_in1k"),
        "resnet34" => (model, "resnet34.tv_in1k"),
        "resnet50" => (model, "resnet50.tv2_in1k"),
        "resnet101" => (model, "resnet101.tv2_in1k"),
        "vgg16" => (model, "vgg16.tv_in1k"),
        "mobilenet_v3_small" => (model, "mobilenetv3_small_100.lamb_in1k"),
        "mobilenet_v3_large" => (model, "mobilenetv3_large_100.ra_in1k"),
        "efficientnet_b0" => (model, "efficientnet_b0.ra_in1k"),
        "vit_b16" => ("vit_b_16", "vit_base_patch16_224.augreg2_in21k_ft_in1k"),
        _ => return None,
    })
}
